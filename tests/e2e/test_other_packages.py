"""A platform and a tool of another package: installed with their entry points, they work without a change here.

The files are those of the documentation.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.fakes.model_replies import Reply
from tests.fakes.model_server import ModelServer

CALL = {"id": "c1", "type": "function", "function": {"name": "roll_dice", "arguments": '{"sides": 1}'}}

ROOT = Path(__file__).parents[2]


def installed(page: str, folder: Path) -> None:
    """What an installer makes of the two files of this page."""
    blocks = re.findall(r"^```(toml|python)\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    (_, project), (_, module) = blocks[:2]
    name = re.search(r'name = "(.+)"', project)
    group, entry = re.search(r'entry-points\."(.+)"\]\n(.+)', project).groups()  # type: ignore[union-attr]
    assert name
    (folder / f"{name[1].replace('-', '_')}.py").write_text(module)
    info = folder / f"{name[1].replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name[1]}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry.replace(chr(34), '')}\n")


async def run_until(folder: Path, home: Path, config: str, expected: str) -> str:
    """What the daemon prints until it has printed `expected`."""
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(config)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "HERMES_HOME": str(home)}
    program = [sys.executable, "-m", "gateway.cli.main", "gateway", "run"]
    pipe = asyncio.subprocess.PIPE
    daemon = await asyncio.create_subprocess_exec(
        *program, env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    printed = ""
    try:
        async with asyncio.timeout(60):
            while expected not in printed:
                assert daemon.stdout
                line = await daemon.stdout.readline()
                assert line, printed
                printed += line.decode()
    finally:
        daemon.terminate()
        await daemon.wait()
    return printed


async def test_a_platform_of_another_package_is_answered(tmp_path: Path) -> None:
    installed("docs/platforms/writing-an-adapter.md", tmp_path)
    config = """
        model: {provider: practice}
        api: {port: 0}
        platforms: {matrix: {enabled: true, access_token: x, allowed_users: ["@ann:example.org"]}}
    """
    printed = await run_until(tmp_path, tmp_path / "home", config, "to @ann:example.org:")
    assert "practice model" in printed


async def test_a_tool_of_another_package_is_called(tmp_path: Path) -> None:
    installed("docs/how-to/your-own-tool.md", tmp_path)
    installed("docs/platforms/writing-an-adapter.md", tmp_path)
    async with ModelServer([Reply(tool_calls=(CALL,)), "It said so."]) as model:
        config = f"""
            model: {{base_url: "{model.url}", name: big, api_key: k}}
            agents: {{main: {{tools: [memory, roll_dice]}}}}
            api: {{port: 0}}
            platforms: {{matrix: {{enabled: true, access_token: x, allowed_users: ["@ann:example.org"]}}}}
        """
        printed = await run_until(tmp_path, tmp_path / "home", config, "to @ann:example.org: It said")
        assert "It shows 1." in model.calls[-1].body["messages"][-1]["content"]
    assert "It said so." in printed


@pytest.mark.parametrize("kind", ["platforms: {matrix: {enabled: true}}", "agents: {main: {tools: [roll_dice]}}"])
def test_what_is_not_installed_is_refused(tmp_path: Path, kind: str) -> None:
    from gateway.config.problems import BadConfig
    from gateway.config.reading import load

    (tmp_path / "config.yaml").write_text(kind)
    with pytest.raises(BadConfig, match="1 problem"):
        load(tmp_path, {})
