"""Stores how far a platform without an event queue was read, so that the next start fetches what was said since."""

import asyncio

from sqlalchemy import Connection

from adapters.base import CatchesUp
from gateway.chats.access import ANYBODY, ChatAccess
from sessions import meta, outbox
from sessions.clock import now_ms
from sessions.db import Database
from sessions.keys import Address, Sender

_POSITION = "seen:{}"
"""The key of a platform's position among the values about the database: epoch milliseconds."""
NOTE_SECONDS = 1.0
SKEW_MS = 10_000
"""So much the clocks of the platform and of this machine may differ."""
REMEMBERED_MS = 30 * 24 * 3_600_000
"""Chats in which nothing was sent for so long are not looked at."""


async def let_catch_up(database: Database, platform: str, adapter: CatchesUp, access: ChatAccess) -> None:
    """Tells the adapter up to where its events were delivered, and which chats may have new messages since."""
    since, chats = await database.write(_last_position, platform)
    users = sorted((access.rules.allowed_users | access.paired.users) - {ANYBODY})
    adapter.catch_up(since, chats, [Sender(id=user) for user in users])


def _last_position(conn: Connection, platform: str) -> tuple[int, list[Address]]:
    """Returns the stored position; at the very first start the present one, so that nothing older is answered and nothing newer missed."""
    now = now_ms()  # the real time, as it is compared with the platform's
    stored = meta.get(conn, _POSITION.format(platform))
    if stored is None:
        stored = str(now - SKEW_MS)
        meta.put(conn, _POSITION.format(platform), stored)
    return int(stored), outbox.chats_since(conn, platform, now - REMEMBERED_MS)


async def store_positions(database: Database, platform: str, adapter: CatchesUp) -> None:
    """Runs until cancelled. Notes how far everything was delivered, at the end too."""
    noted = 0
    try:
        while True:
            await asyncio.sleep(NOTE_SECONDS)
            noted = await _note(database, platform, adapter, noted)
    finally:  # cancelled at the end of the process: what came since the last second is noted, too
        await _note(database, platform, adapter, noted)


async def _note(database: Database, platform: str, adapter: CatchesUp, noted: int) -> int:
    seen = adapter.seen_until()
    if seen is None or seen <= noted:
        return noted
    await database.write(meta.put, _POSITION.format(platform), str(seen))
    return seen
