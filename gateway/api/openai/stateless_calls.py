"""Answers calls without a session from what the caller sent. Nothing is stored."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from gateway.agent.loop import advance
from gateway.agent.models.interface import (
    REFUSED,
    TOO_LONG,
    ContextOverflow,
    InputTooLong,
    ModelRefused,
    ModelUnreachable,
)
from gateway.api.http.connection import connection_of
from gateway.api.http.endpoint import ApiCall
from gateway.api.http.errors import ApiError, invalid, unavailable
from gateway.api.http.server_state import ServerState
from gateway.api.http.uploads import embedded
from gateway.api.openai.exchange import AgentCall, ExchangeOutcome, TextFeed, finish_reason
from gateway.observe.logging import get_logger
from gateway.runs.stateless import StatelessSteps

log = get_logger(__name__)


class StatelessExchange:
    """Implements `Exchange`. `group`: whose share of the places at the model it takes."""

    def __init__(self, server: ServerState, question: AgentCall, group: str) -> None:
        self.feed = TextFeed()
        self.id = secrets.token_hex(12)
        self.came_at = server.api.services.clock()
        self._server = server
        self._group = group
        self._work = StatelessSteps(server.api.services, question.messages, question.options, self.feed.on_event)
        self.task = asyncio.create_task(self._advance())

    async def _advance(self) -> None:
        async with self._server.api.places.acquire(self._group):
            await advance(self._work)

    async def outcome(self) -> ExchangeOutcome:
        try:
            # Shielded, so that below a wait that is cancelled differs from work that is cancelled because the caller has left.
            await asyncio.shield(self.task)
        except (ModelRefused, ModelUnreachable, ContextOverflow, InputTooLong) as error:
            raise _refused(error) from error
        except asyncio.CancelledError:
            if self.task.cancelled():
                raise ConnectionResetError("the caller has left") from None
            raise
        except Exception as error:  # one bad call must stay its caller's problem
            log.exception("call.failed")
            raise unavailable("The call failed. The gateway's log says why.", code="run_failed") from error
        given = self._work.given
        return ExchangeOutcome(
            text=given.text,
            tool_calls=[call.as_sent() for call in given.tool_calls],
            finish_reason=finish_reason(given.finish_reason),
            input_tokens=given.usage.input_tokens,
            output_tokens=given.usage.output_tokens,
            cached_tokens=given.usage.cached_tokens,
        )


def _refused(error: ModelRefused | ModelUnreachable | ContextOverflow | InputTooLong) -> ApiError:
    match error:
        case ContextOverflow() | InputTooLong():
            return invalid(str(error), code=TOO_LONG, param="messages")
        case ModelRefused() if error.about_transcript or error.status in {400, 422}:
            return invalid(str(error), code=REFUSED)
        case _:
            return unavailable(str(error), code="model_unavailable")


@asynccontextmanager
async def call_without_session(call: ApiCall[Any, Any], question: AgentCall) -> AsyncGenerator[StatelessExchange]:
    """Yields the exchange of a call without a session. Nobody else will ever read the answer, so the work ends with the block or the
    connection, whichever is first.
    """
    connection = connection_of(call.request)
    whole = replace(question, messages=await embedded(call, question.messages))
    exchange = StatelessExchange(call.server, whole, f"key:{call.key.name}")
    forget = connection.when_lost(exchange.task.cancel)
    try:
        yield exchange
    finally:
        forget()
        exchange.task.cancel()
        with suppress(asyncio.CancelledError, Exception):  # whatever it was, nobody waits for it any more
            await exchange.task
