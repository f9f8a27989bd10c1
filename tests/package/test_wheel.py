"""The wheel in an empty environment, used by somebody who is not root and has no checkout: `make package-test`.

In the order of the file, since the last test fills the environment.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.machine import free_port

pytestmark = [pytest.mark.package, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
NOBODY = 65534
UV = str(Path(sys.executable).with_name("uv"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment with the wheel in it. `home`: of the person who uses it."""

    environment: Path
    home: Path

    def pip(self, *arguments: str) -> str:
        command = [self.environment / "bin/python", "-m", "pip", "install", "-q", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @property
    def wheel(self) -> str:
        return str(next(self.home.parent.glob("hermes_gateway-*.whl")))

    def person(self) -> dict[str, object]:
        """As whom commands run, and where: outside of any checkout."""
        environ = {"HOME": str(self.home), "PATH": f"{self.environment / 'bin'}:/usr/bin:/bin", "LANG": "C.UTF-8"}
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        return {"cwd": self.home, "env": environ, **user}

    def run(self, *command: str, code: int = 0, said: str | None = None) -> str:
        done = subprocess.run(
            command, input=said, capture_output=True, text=True, timeout=120, check=False, **self.person()
        )  # type: ignore[call-overload]
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def config(self) -> Path:
        """The file, made by the command that makes it."""
        path = self.home / ".hermes" / "config.yaml"
        if not path.exists():
            self.run("hermes", "config", "init")
        return path

    @contextmanager
    def gateway(self) -> Generator[str]:
        """Runs it until the block is left. Gives its address."""
        port = free_port()
        self.config()
        self.run("hermes", "config", "set", "api.port", str(port))
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(
            ["hermes", "gateway", "run"], stdin=quiet, stdout=quiet, stderr=quiet, **self.person()
        )  # type: ignore[call-overload]
        url, ends = f"http://127.0.0.1:{port}", time.monotonic() + 60
        try:
            while True:
                with suppress(OSError), urllib.request.urlopen(f"{url}/readyz") as answer:
                    if answer.status == 200:
                        break
                assert time.monotonic() < ends
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait()


def python_for_others() -> str:
    """A Python that somebody else than root may run: not one in root's own folder."""
    for program in (str(Path(sys.executable).resolve()), "/usr/bin/python3.11", "/usr/bin/python3"):
        with suppress(OSError):
            user = {"user": NOBODY} if os.geteuid() == 0 else {}
            subprocess.run([program, "-c", "import sys; assert sys.version_info >= (3, 11)"], check=True, **user)
            return program
    pytest.skip("no Python here that another user may run")


@pytest.fixture(scope="module")
def installed() -> Generator[Installed]:
    with tempfile.TemporaryDirectory(prefix="hermes-package-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        subprocess.run(["make", "package"], cwd=ROOT, check=True, timeout=300, capture_output=True)
        shutil.copy(next((ROOT / "dist").glob("*.whl")), place)
        subprocess.run([UV, "venv", "-q", "--seed", "--python", python_for_others(), place / "env"], check=True)
        home = place / "ann"
        home.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(home, NOBODY, NOBODY)
        found = Installed(environment=place / "env", home=home)
        found.pip(found.wheel)
        yield found


def test_the_first_things_that_somebody_does(installed: Installed) -> None:
    assert re.search(r"^hermes 0\.[^$]*Commit [0-9a-f]{7,}\nExtras none$", installed.run("hermes", "version"))
    assert "I am the practice model" in installed.run("hermes", "chat", "-q", "hello")
    assert "cli" in installed.run("hermes", "sessions", "list")
    assert installed.run("hermes", "config", "check", code=0)
    assert "ExecStart=" in installed.run("hermes", "gateway", "install", "--print")
    assert "ok   practice" in installed.run("hermes", "setup", "--non-interactive")
    with installed.gateway() as url:
        link = json.loads(installed.run("hermes", "dashboard", "--json"))["url"]
        assert link.startswith(f"{url}/ui/login#")
        for path, part in (("/ui/login", "Sign in"), ("/ui/static/live.js", "EventSource"), ("/docs", "<html")):
            with urllib.request.urlopen(url + path) as answer:
                assert part in answer.read().decode()
        assert '"running": true' in installed.run("hermes", "gateway", "status", "--json")


def test_a_platform_without_its_library_says_what_to_install(installed: Installed) -> None:
    config = installed.config()
    kept = config.read_text()
    try:
        for name, section in (
            ("telegram", "{enabled: true, token: '1:x', allowed_users: ['1']}"),
            ("slack", "{enabled: true, bot_token: xoxb-1, app_token: xapp-1, allowed_users: ['U1']}"),
        ):
            config.write_text(f"platforms:\n  {name}: {section}\n")
            told = installed.run("hermes", "doctor", code=1)
            command = re.search(rf"Run: (.*hermes-gateway\[{name}\].*)", told)
            assert command is not None, told
            subprocess.run(command[1], shell=True, check=True, capture_output=True)  # as a person pastes it
            assert "Run: " not in installed.run("hermes", "doctor", code=1)
    finally:
        config.write_text(kept)


def test_a_tool_of_another_package_and_the_fakes(installed: Installed) -> None:
    """What stands on the pages for those who build on it."""
    page = (ROOT / "docs/how-to/your-own-tool.md").read_text()
    (_, project), (_, module) = re.findall(r"^```(toml|python)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[:2]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pyproject.toml").write_text(project)
        (Path(folder) / "hermes_dice.py").write_text(module)
        installed.pip("--no-build-isolation", "hatchling", folder)
    draft = installed.home / "draft.yaml"
    draft.write_text("agents:\n  main: {tools: [memory, roll_dice]}\n")
    assert "is good" in installed.run("hermes", "config", "check", str(draft))
    installed.pip(f"{installed.wheel}[testing]")
    said = "import asyncio, adapters.testing.slack as s\nasync def f():\n async with s.SlackServer() as x: print(x.api_base)\n"
    assert "http://127.0.0.1:" in installed.run("python", "-c", f"{said}asyncio.run(f())")


@pytest.mark.parametrize("installer", ["uv", "pipx"])
def test_other_installers_too(installed: Installed, installer: str) -> None:
    tools = installed.home / installer
    places = {"UV_TOOL_DIR": "t", "UV_TOOL_BIN_DIR": "b", "PIPX_HOME": "t", "PIPX_BIN_DIR": "b"}
    environ = {**os.environ, **{name: str(tools / part) for name, part in places.items()}}
    python = str(installed.environment / "bin/python")
    if installer == "uv":
        command = [UV, "tool", "install", "-q", "--python", python, installed.wheel]
    else:
        installed.pip("pipx")
        command = [python, "-m", "pipx", "install", installed.wheel]
    subprocess.run(command, check=True, env=environ, capture_output=True)
    hermes = str(tools / "b" / "hermes")
    assert installed.run(hermes, "version").startswith("hermes 0.")
    installed.config().write_text("platforms:\n  telegram: {enabled: true, token: '1:x', allowed_users: ['1']}\n")
    told = installed.run(hermes, "doctor", code=1)
    assert (
        f"Run: {'uv tool install' if installer == 'uv' else 'pipx inject hermes-gateway'} 'hermes-gateway[tel" in told
    )


@pytest.mark.parametrize(
    ("extra", "module"),
    [
        ("telegram", "adapters.telegram.adapter"),
        ("discord", "adapters.discord.adapter"),
        ("slack", "adapters.slack.adapter"),
        ("postgres", "psycopg, sessions.db.postgres"),
        ("web", "trafilatura, pypdf"),
        ("mcp", "mcp"),
        ("testing", "adapters.testing.slack, adapters.testing.telegram"),
    ],
)
def test_an_extra_brings_what_it_needs(installed: Installed, extra: str, module: str) -> None:
    installed.pip(f"{installed.wheel}[{extra}]")
    installed.run("python", "-c", f"import {module}")
