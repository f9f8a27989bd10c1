"""A model, a home that knows it, and windows that are closed at the end."""

import asyncio
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
import yaml

from tests.e2e.chat.windows import SlowModel, TerminalWindow
from tests.fakes.model_server import ModelServer


@pytest.fixture
def model() -> Generator[tuple[ModelServer, SlowModel]]:
    """A model server on a loop of its own, since a terminal is watched by blocking."""
    slow = SlowModel()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = ModelServer(slow)
    run = lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(30)  # noqa: E731
    run(server.__aenter__())
    yield server, slow
    slow.go_on.set()
    run(server.__aexit__())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def configured(home: Path, model: tuple[ModelServer, SlowModel]) -> Path:
    section = {"base_url": model[0].url, "name": "fake-model", "api_key": "sk-fake-1234567890"}
    (home / "config.yaml").write_text(yaml.safe_dump({"model": section}))
    return home


@pytest.fixture
def windows() -> Generator[list[TerminalWindow]]:
    opened: list[TerminalWindow] = []
    yield opened
    for window in opened:
        window.child.close(force=True)


@pytest.fixture
def open_window(configured: Path, windows: list[TerminalWindow]):
    def open_window(*arguments: str) -> TerminalWindow:
        windows.append(TerminalWindow(configured, *arguments))
        windows[-1].sees("you ›")
        return windows[-1]

    return open_window
