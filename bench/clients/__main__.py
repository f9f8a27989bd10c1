"""Client libraries of others against a real `hermes gateway run` with the practice model: a table of what works.

The snippets of docs that need such a library are run as they stand, too. Each is installed on demand into a folder of its own below ~/.cache/hermes-clients (or HERMES_CLIENTS). Names as arguments choose some.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.clients.snippets import Snippet, snippets
from tests.machine import free_port

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("HERMES_CLIENTS", Path.home() / ".cache" / "hermes-clients"))


@dataclass(frozen=True, kw_only=True)
class ClientLibrary:
    name: str
    packages: tuple[str, ...]
    script: str = ""
    snippet: Snippet | None = None

    @property
    def folder(self) -> Path:
        return CACHE / self.name.replace("/", "-").replace(" ", "-")

    @property
    def is_node(self) -> bool:
        return self.snippet.is_node if self.snippet is not None else self.script.endswith(".mjs")


CLIENTS = (
    ClientLibrary(name="openai", packages=("openai",), script="check_openai.py"),
    ClientLibrary(name="openai (npm)", packages=("openai",), script="check_openai.mjs"),
    ClientLibrary(name="langchain-openai", packages=("langchain-openai",), script="check_langchain.py"),
    ClientLibrary(
        name="@langchain/openai (npm)", packages=("@langchain/openai", "@langchain/core"), script="check_langchain.mjs"
    ),
    ClientLibrary(name="pydantic-ai", packages=("pydantic-ai-slim[openai]",), script="check_pydantic_ai.py"),
    ClientLibrary(name="openai-agents", packages=("openai-agents",), script="check_openai_agents.py"),
    ClientLibrary(name="litellm", packages=("litellm", "mcp"), script="check_litellm.py"),
    ClientLibrary(name="llm", packages=("llm",), script="check_llm.py"),
    ClientLibrary(name="instructor", packages=("instructor",), script="check_instructor.py"),
    ClientLibrary(name="ai-sdk (npm)", packages=("ai", "@ai-sdk/openai"), script="check_ai_sdk.mjs"),
)

SNIPPETS = tuple(
    ClientLibrary(name=f"{each.packages[0].partition('[')[0]} in {each.page}", packages=each.packages, snippet=each)
    for each in snippets()
)


def install(client: ClientLibrary) -> str:
    """Into its own folder, once. Returns what went wrong."""
    done = client.folder / ".installed"
    if done.exists():
        return ""
    client.folder.mkdir(parents=True, exist_ok=True)
    if client.is_node:
        steps = [["npm", "install", "--no-audit", "--no-fund", "--prefix", str(client.folder), *client.packages]]
    else:
        uv = [sys.executable, "-m", "uv"]
        python = str(client.folder / "bin" / "python")
        steps = [
            [*uv, "venv", "-q", "--clear", "--python", sys.executable, str(client.folder)],
            [*uv, "pip", "install", "-q", "--python", python, *client.packages],
        ]
    for step in steps:
        ended = subprocess.run(step, capture_output=True, text=True, timeout=600, check=False)
        if ended.returncode:
            return f"not installed: {ended.stderr.strip()[-200:]}"
    done.touch()
    return ""


def version(client: ClientLibrary) -> str:
    package = client.packages[0].partition("[")[0]
    if client.is_node:
        path = client.folder / "node_modules" / package / "package.json"
        return next((line.split('"')[3] for line in path.read_text().splitlines() if '"version"' in line), "")
    code = f"from importlib.metadata import version; print(version('{package}'))"
    return subprocess.run(
        [client.folder / "bin" / "python", "-c", code], capture_output=True, text=True, check=False
    ).stdout.strip()


def check(client: ClientLibrary, url: str, key: str) -> tuple[str, str, str]:
    problem = install(client)
    if problem:
        return client.name, "", problem
    environ = {**os.environ, "HERMES_URL": url, "HERMES_KEY": key}
    if client.snippet is not None:
        command = client.snippet.prepare(client.folder / "snippet", url, key)
        environ |= {"HERMES_URL": f"{url}/v1", "LLM_USER_PATH": str(client.folder / "snippet")}
    elif client.is_node:
        scripts = client.folder / "scripts"
        shutil.copytree(HERE / "node", scripts, dirs_exist_ok=True)  # modules are looked for from where the script lies
        command = ["node", str(scripts / client.script)]
    else:
        command = [str(client.folder / "bin" / "python"), str(HERE / "python" / client.script)]
    try:
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180, check=False)
    except subprocess.TimeoutExpired:
        return client.name, version(client), "does not: no end after 180 s"
    lines = ended.stderr.strip().splitlines() or ["it printed nothing"]
    works = ended.returncode == 0 and (client.snippet is None or bool(ended.stdout.strip()))
    return client.name, version(client), "works" if works else f"does not: {lines[-1][:160]}"


@contextmanager
def gateway() -> Generator[tuple[str, str]]:
    """Address and key of a daemon in a home of its own."""
    with tempfile.TemporaryDirectory() as home:
        port = free_port()
        (Path(home) / "config.yaml").write_text(f"model: {{provider: practice}}\napi: {{port: {port}}}\n")
        program = [sys.executable, "-m", "gateway.cli.main", "--home", home, "gateway", "run"]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(program, stdin=quiet, stdout=quiet, stderr=quiet) as daemon:
            try:
                url = f"http://127.0.0.1:{port}"
                _until_ready(url)
                yield url, (Path(home) / "api_key").read_text().strip()
            finally:
                daemon.terminate()


def _until_ready(url: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the gateway does not come up")


def main() -> None:
    chosen = [client for client in (*CLIENTS, *SNIPPETS) if not sys.argv[1:] or client.name.split()[0] in sys.argv[1:]]
    with gateway() as (url, key), ThreadPoolExecutor(2) as threads:
        rows = list(threads.map(lambda client: check(client, url, key), chosen))
    for name, which, result in [("client", "version", "result"), *rows]:
        print(f"{name:<44}{which:<12}{result}")
    sys.exit(any(result != "works" for _, _, result in rows))


if __name__ == "__main__":
    main()
