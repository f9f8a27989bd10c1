"""Repeats a question that nobody has answered for a day, in DMs only."""

import asyncio
from collections.abc import Awaitable, Callable

from sqlalchemy import Connection

from gateway.observe.logging import get_logger
from gateway.runs.replies import question_text
from gateway.texts import say
from gateway.texts.times import format_short_time
from sessions import runs
from sessions.clock import Clock, now_ms
from sessions.db import Database
from sessions.errors import StateError
from sessions.keys import ChatKind
from sessions.outbox_body import OutboxBody
from sessions.records import Ask, Run

log = get_logger(__name__)

AFTER_MS = 24 * 3_600_000
POLL_SECONDS = 60.0


async def send_reminders(
    database: Database,
    timezone: str,
    *,
    clock: Clock = now_ms,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Repeats unanswered questions, until cancelled."""
    while True:
        try:
            for run, ask in await database.read(runs.unanswered, clock() - AFTER_MS):
                # Not in groups: there the question stands among other people's messages, and would be repeated to all of them.
                if run.route is not None and run.route.address.kind is ChatKind.DM:
                    await database.write(_remind, run, ask, timezone, clock())
        except StateError as error:
            log.warning("ask.not_looked_at", error=str(error))
        await sleep(POLL_SECONDS)


def _remind(conn: Connection, run: Run, ask: Ask, timezone: str, now: int) -> None:
    since = format_short_time(ask.created_at, now, timezone)
    text = say("ask.waiting_reminder", when=since, question=question_text(ask))
    runs.remind(conn, run, ask, OutboxBody(text=text), now)
