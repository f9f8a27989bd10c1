"""The snippets of README and docs run, as they stand, against a real daemon; only the port is another."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.telegram.daemon import save
from tests.e2e.test_http_daemon import HttpDaemon
from tests.machine import free_port

ROOT = Path(__file__).parents[2]
SNIPPET = re.compile(r"(<!-- needs[^\n]*-->\n)?^ *```(python|sh)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def snippets() -> list[tuple[str, str, str]]:
    """Page, language and code; those that need other packages are run by `make clients`."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    served = [page for page in pages if "8642" in page.read_text()]
    return [
        (page.name, language, code)
        for page in served
        for needs, language, code in SNIPPET.findall(page.read_text())
        if not needs
    ]


@pytest.mark.parametrize(("page", "language", "code"), snippets(), ids=lambda value: value if len(value) < 30 else "")
def test_there_is_something_to_run(page: str, language: str, code: str):
    assert page
    assert language in {"python", "sh"}
    assert "hermes" in code.lower()


async def test_every_snippet_runs(tmp_path: Path):
    home, port = tmp_path / ".hermes", free_port()
    home.mkdir(mode=0o700)
    save(home / "config.yaml", yaml.safe_dump({"model": {"provider": "practice"}, "api": {"port": port}}))
    daemon = HttpDaemon(home, port)
    await daemon.start()
    try:
        environ = {
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
            "HERMES_URL": f"{daemon.url}/v1",
            "HERMES_KEY": (home / "api_key").read_text().strip(),
        }
        for page, language, code in snippets():
            program = [sys.executable, "-c"] if language == "python" else ["/bin/sh", "-ec"]
            command = [*program, code.replace("8642", str(port))]
            ended = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, env=environ, timeout=60, check=False
            )
            assert ended.returncode == 0, f"{page}:\n{code}\n{ended.stderr}"
            assert ended.stdout.strip(), f"{page}:\n{code}"
            assert '"error"' not in ended.stdout, f"{page}:\n{code}\n{ended.stdout}"
    finally:
        await daemon.kill()
