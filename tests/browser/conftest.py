"""A real browser: Chromium of the distribution, which is installed where it is missing and the tests may do so."""

import os
import shutil
import subprocess
from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Browser, async_playwright

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_PACKAGE = "chromium-headless-shell"
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def _found() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser_path() -> str:
    """The program. Without one the tests are skipped, but in CI they fail."""
    if (found := _found()) is not None:
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", _PACKAGE]):
            subprocess.run(["apt-get", *command], env=environ, check=False, capture_output=True, timeout=600)
        if (found := _found()) is not None:
            return found
    why = f"no browser: apt-get install {_PACKAGE}"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture
async def browser(browser_path: str) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=browser_path, args=list(_QUIET))
        yield opened
        await opened.close()
