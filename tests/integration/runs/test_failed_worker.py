"""A worker that fails ends the process, which systemd starts again: it would take messages and answer none."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.app import open_app, running
from gateway.config.reading import load


async def test_a_worker_that_fails_ends_what_serves(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config.yaml").write_text(json.dumps({"model": {"provider": "practice"}}))

    async def failing() -> None:
        raise RuntimeError("the worker has failed")

    async with open_app(home, load(home, {})) as app:
        monkeypatch.setattr(app.worker, "run", failing)
        with pytest.raises(RuntimeError, match="the worker has failed"):
            async with asyncio.timeout(30), running(app):
                await asyncio.Event().wait()
