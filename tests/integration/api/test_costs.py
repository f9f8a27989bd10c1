"""What a call costs beside the model, counted. `make bench` measures it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.integration.api.serving import gateway


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

    def on_execute(_: Any, statement: Any, *__: Any) -> None:
        found[id(statement)] = statement

    event.listen(Engine, "before_execute", on_execute)
    yield found
    event.remove(Engine, "before_execute", on_execute)
