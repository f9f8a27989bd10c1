"""What a call costs beside the model. Generous bounds: they catch a change of kind, not of degree."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import gateway
from tests.machine import slowness


async def test_a_plain_call_costs_little(home: Path) -> None:
    """Client, gate and answer together."""
    async with ModelServer(fast="ok") as model, gateway(home, model=model) as gw:
        await gw.chat("warm")
        before = time.process_time()
        for _ in range(100):
            await gw.ask("GET", "/v1/models")
        assert (time.process_time() - before) / 100 < 0.005 * slowness()


async def test_a_call_on_a_session_builds_no_statement_anew(home: Path) -> None:
    """Building one costs more than running it. What is done now and then may come in between, so one clean call of five is enough."""
    async with gateway(home) as gw:
        with executed() as known:
            for _ in range(3):
                await gw.chat("warm", "s")
        clean = 0
        for _ in range(5):
            with executed() as again:
                await gw.chat("hi", "s")
            clean += again.keys() <= known.keys()
        assert clean


@contextmanager
def executed() -> Iterator[dict[int, Any]]:
    """The statements that run meanwhile, by their identity."""
    found: dict[int, Any] = {}

    def hear(_: Any, statement: Any, *__: Any) -> None:
        found[id(statement)] = statement

    event.listen(Engine, "before_execute", hear)
    yield found
    event.remove(Engine, "before_execute", hear)
