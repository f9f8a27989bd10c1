"""What is older than it is to be kept goes; what is younger, open or at work stays."""

import asyncio
import os
from pathlib import Path

from sqlalchemy import Connection, select

from gateway.maintenance import DAY_MS, Maintenance
from sessions import inbox, outbox, runs, store
from sessions.clock import now_ms
from sessions.db import Database
from sessions.db.schema import outbox as outbox_table
from sessions.erase import erase
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.messages import Content
from sessions.records import EndReason, InboxRow, Message, OutState, Role, Route, Source
from sessions.runs import Opening
from tests.app import make_app
from tests.conftest import HandClock
from tests.integration.gateway.intake_in_process import GROUP, IntakeHarness

NOW = 1_800_000_000_000
ROUTE = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7"))


def conversation(conn: Connection, name: str, ended: int | None) -> str:
    session = store.start(conn, SessionKey.cli(name), 1, source=Source.CLI)
    store.append(conn, session.id, [Message(role=Role.USER, content=f"said in {name}")], 2)
    if ended is not None:
        store.end(conn, session.id, EndReason.USER, ended)
    return session.id


def sent(conn: Connection, key: str, at: int, state: OutState, session_key: str = "agent:main:telegram:dm") -> None:
    outbox.put(conn, ROUTE, Content(text=key), at, dedup_key=key, session_key=session_key)
    conn.execute(outbox_table.update().where(outbox_table.c.dedup_key == key).values(state=state))


def kept(conn: Connection) -> set[str]:
    return set(conn.scalars(select(outbox_table.c.dedup_key)))


async def test_what_is_too_old_goes(home: Path, database: Database):
    old, young, is_open = (
        database.write_now(conversation, name, ended)
        for name, ended in (("old", NOW - 91 * DAY_MS), ("young", NOW - 89 * DAY_MS), ("open", None))
    )
    ago = NOW - 31 * DAY_MS
    busy = "agent:main:telegram:group:-1"
    new = InboxRow(dedup_key="d", session_key=busy, messages=[Message(content="x")], route=ROUTE)
    database.write_now(runs.accept, new, Opening(), NOW)
    for key, at, state, where in (
        ("sent", ago, OutState.SENT, "k"),
        ("given up", ago, OutState.DEAD, "k"),
        ("waits", ago, OutState.PENDING, "k"),
        ("of a chat at work", ago, OutState.SENT, busy),
        ("new", NOW - DAY_MS, OutState.SENT, "k"),
    ):
        database.write_now(sent, key, at, state, where)
    inbox = home / "workspace" / "agent_main" / "inbox"
    inbox.mkdir(parents=True)
    for name, days in (("old.txt", 91), ("young.txt", 89)):
        (inbox / name).write_text(name)
        os.utime(inbox / name, (NOW / 1000 - days * 86_400,) * 2)

    days = {"sessions_days": 90, "files_days": 90, "outbox_days": 30}
    upkeep = Maintenance(make_app(home, database, clock=HandClock(NOW), sections={"retention": days}))
    await upkeep.prune_old()
    await upkeep.prune_home()
    assert not database.read_now(store.exists, old)
    assert database.read_now(store.exists, young)
    assert database.read_now(store.exists, is_open)
    assert database.read_now(kept) == {"waits", "of a chat at work", "new"}
    assert [path.name for path in inbox.iterdir()] == ["young.txt"]
    await upkeep.close()


async def test_by_default_conversations_and_files_stay_for_ever(home: Path, sqlite: Database):
    old = sqlite.write_now(conversation, "old", 5)
    upkeep = Maintenance(make_app(home, sqlite, clock=HandClock(NOW)))
    await upkeep.prune_old()
    assert sqlite.read_now(store.exists, old)
    await upkeep.close()


async def test_a_deleted_conversation_does_not_come_back_when_the_platform_repeats_its_events(
    home: Path, database: Database, clock: HandClock
):
    intake = IntakeHarness(database, clock)
    said, beside = await intake.comes("swordfish", GROUP, mentioned=True), await intake.comes("quetzal", GROUP)
    (run_id,) = intake.rows("SELECT id FROM runs")
    assert database.write_now(runs.stop, run_id, clock.tick())
    (session_id,) = intake.rows("SELECT id FROM sessions")
    assert await asyncio.to_thread(erase, home, database, [session_id], by="ann", now=1) == 1

    await intake.deliver(said)
    await intake.deliver(beside)
    for table in ("sessions", "runs", "inbox", "overheard"):
        assert intake.rows(f"SELECT count(*) FROM {table}") == [0]
    kept = "".join(intake.rows("SELECT hash FROM deleted_keys"))
    assert said.dedup_key not in kept
    assert len(kept) == 2 * 32

    for late, left in ((inbox.DELETED_KEYS_KEPT_MS - DAY_MS, 2), (inbox.DELETED_KEYS_KEPT_MS + DAY_MS, 0)):
        later = HandClock(now_ms() + late)
        upkeep = asyncio.create_task(Maintenance(make_app(home, database, clock=later)).run())
        async with asyncio.timeout(30):
            while intake.rows("SELECT count(*) FROM deleted_keys") != [left]:
                await asyncio.sleep(0.01)
        upkeep.cancel()
        await asyncio.gather(upkeep, return_exceptions=True)
