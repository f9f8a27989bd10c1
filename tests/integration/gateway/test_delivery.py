"""What waits in the outbox goes out, in order and without more looking than needed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text

from adapters.base import Deliver, Pace, TryLater, Undeliverable
from gateway import delivery
from gateway.delivery import IN_HAND, UNSURE_SECONDS, Delivery
from gateway.pacing import Pacer
from sessions import outbox
from sessions.clock import Clock, now_ms
from sessions.db import Database
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Outbound, Piece, Receipt
from sessions.records import AskKind, Route
from tests.conftest import HandClock
from tests.integration.gateway.door import DM_KEY, Door


class Chats:
    """A platform that takes everything, as quickly as it is allowed to."""

    platform = Platform.TELEGRAM

    def __init__(self, per_second: float) -> None:
        self.pace = Pace(per_second=per_second, dm=0, group=0, edit=0)
        self.sent: list[tuple[str, str]] = []
        self.edited: list[tuple[str, str]] = []
        self.gone: set[str] = set()
        self.unheard = False
        self.tries = 0
        self.open = asyncio.Event()
        self.open.set()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        return [{"text": part} for part in outbound.text.split("|")]

    async def send(self, address: Address, piece: Piece) -> Receipt:
        await self.open.wait()
        if address.chat_id in self.gone:
            raise Undeliverable("gone")
        if self.unheard:
            self.tries += 1
            raise TryLater("no answer", ambiguous=True)
        self.sent.append((address.chat_id, piece["text"]))
        return Receipt(message_id=str(len(self.sent)))

    async def edit(self, address: Address, message_id: str, piece: Piece) -> None:
        if address.chat_id in self.gone:
            raise Undeliverable("gone")
        self.edited.append((message_id, piece["text"]))

    async def run(self, deliver: Deliver) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class LivelyChats(Chats):
    """It shows when it lives, whatever becomes of what it is sent."""

    alive: float | None = None

    def last_success(self) -> float | None:
        return self.alive

    def on_success(self, tell: object) -> None:
        raise NotImplementedError


class NoPreviews:
    def __init__(self) -> None:
        self.cleared: list[str] = []
        self.ended: list[str] = []

    async def take(self, run_id: str) -> str | None:
        return None

    def became(self, run_id: str) -> None:
        raise NotImplementedError

    async def clear(self, run_id: str) -> None:
        self.cleared.append(run_id)

    def stopped(self, run_ids: Sequence[str]) -> None:
        self.ended += run_ids


@asynccontextmanager
async def delivering(
    database: Database, chats: Chats, previews: NoPreviews | None = None, clock: Clock = now_ms
) -> AsyncGenerator[None]:
    under_test = Delivery(database, chats, Pacer(chats.pace), previews or NoPreviews(), clock=clock)
    task = asyncio.create_task(under_test.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def put(conn: Connection, chat: str, said: str, **more: Any) -> None:
    address = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id=chat)
    outbox.put(
        conn, Route(address=address), {"text": said}, now_ms(), dedup_key=f"{chat}:{said}", session_key="", **more
    )


async def until(ready: Any) -> None:
    async with asyncio.timeout(30):
        while not ready():
            await asyncio.sleep(0.005)


async def test_each_chat_gets_its_messages_and_pieces_in_order(database: Database) -> None:
    chats = Chats(per_second=100_000)
    async with delivering(database, chats):
        for number in range(12):
            await database.write(put, str(number % 3), f"{number} first|{number} second")
        await until(lambda: len(chats.sent) == 24)
    for chat in "012":
        heard = [said for to, said in chats.sent if to == chat]
        assert heard == [f"{number} {part}" for number in range(int(chat), 12, 3) for part in ("first", "second")]


async def test_a_crowd_is_not_looked_at_again_for_every_message(sqlite: Database) -> None:
    """A claim walks through all that waits, so one for each message would cost the square of it."""
    crowd, claims = 8 * IN_HAND, 0

    def count(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        nonlocal claims
        claims += statement.startswith("UPDATE outbox SET lease_owner") and "NOT IN" in statement

    chats = Chats(per_second=100_000)
    chats.open.clear()
    event.listen(Engine, "before_cursor_execute", count)
    try:
        async with delivering(sqlite, chats):
            for number in range(crowd):
                await sqlite.write(put, str(number), "hello")
            chats.open.set()
            await until(lambda: len(chats.sent) == crowd)
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert 1 <= claims < crowd / 2


async def test_a_message_that_another_process_put_in_is_found(sqlite: Database) -> None:
    chats, previews = Chats(per_second=100_000), NoPreviews()
    under_test = Delivery(sqlite, chats, Pacer(chats.pace), previews)
    task = asyncio.create_task(under_test.run())
    await asyncio.sleep(0.05)

    def silently(conn: Connection) -> None:
        put(conn, "1", "hello")
        conn.info.pop("touched", None)

    await sqlite.write(silently)
    under_test.wake()
    await until(lambda: chats.sent == [("1", "hello")])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("gone", [False, True])
async def test_previews_go_with_the_answer_whether_it_arrives_or_never_will(sqlite: Database, gone: bool) -> None:
    chats, previews = Chats(per_second=100_000), NoPreviews()
    chats.gone = {"1"} if gone else set()
    async with delivering(sqlite, chats, previews):

        def with_run(conn: Connection) -> None:
            put(conn, "1", "hello", run_id="r")

        await sqlite.write(with_run)
        await until(lambda: previews.cleared == ["r"])
    states = await sqlite.read(lambda conn: [row[0] for row in conn.execute(text("SELECT state FROM outbox"))])
    assert states == ["dead" if gone else "sent"]


async def test_a_card_is_closed_where_its_buttons_are_once_it_has_arrived(database: Database, clock: HandClock) -> None:
    chats, door = Chats(per_second=100_000), Door(database, clock)
    await door.comes("hello")
    number = door.waits(DM_KEY, AskKind.QUESTION, card="Which?|red or blue", delivered=False)
    await door.comes("red")
    async with delivering(database, chats, clock=clock):
        await until(lambda: chats.edited)
    assert chats.sent == [("7", "Which?"), ("7", "red or blue")]
    assert chats.edited == [("2", "rm -rf *\n\nAnswered by Ann: red")]
    assert door.closed() == [number]


def tell(conn: Connection) -> tuple[str, int]:
    """State and due time of the latest."""
    state, due = conn.execute(text("SELECT state, due_at FROM outbox ORDER BY id DESC")).first() or ("", 0)
    return state, due


async def test_the_one_more_try_waits_for_a_sign_of_life_and_not_for_more_than_an_hour(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_BACKOFF", (0.01,))
    monkeypatch.setattr(delivery, "_SIGN_SECONDS", 0.01)
    chats, later = LivelyChats(per_second=100_000), 0

    async def doubted(chat: str) -> None:
        """Looked at again, and left for later, some times."""
        chats.unheard, before = True, chats.tries
        await sqlite.write(put, chat, "hello")
        await until(lambda: chats.tries > before)
        seen = set[int]()
        async with asyncio.timeout(30):
            while len(seen) < 3:
                state, due = await sqlite.read(tell)
                seen |= {due} if state == "unknown" else set()
                await asyncio.sleep(0.005)
        assert chats.tries == before + 1
        chats.unheard = False

    async with delivering(sqlite, chats, clock=lambda: now_ms() + later):
        await doubted("1")
        chats.alive = 2.0
        await until(lambda: chats.sent == [("1", "hello")])
        await doubted("2")
        later = outbox.MAX_AGE_MS
        async with asyncio.timeout(30):
            while [letter.chat for letter in await sqlite.read(outbox.dead_letters)] != ["2"]:
                await asyncio.sleep(0.005)
    assert chats.sent == [("1", "hello")]


async def test_where_no_sign_of_life_is_given_the_one_more_try_comes_later(sqlite: Database) -> None:
    chats = Chats(per_second=100_000)
    chats.unheard = True
    async with delivering(sqlite, chats):
        await sqlite.write(put, "1", "hello")
        async with asyncio.timeout(30):
            while (told := await sqlite.read(tell))[0] != "unknown":
                await asyncio.sleep(0.01)
    assert told[1] - now_ms() > (UNSURE_SECONDS - 10) * 1_000


@pytest.mark.parametrize("lost", ["card", "edit"])
async def test_a_card_that_cannot_be_closed_leaves_no_dead_letter(
    sqlite: Database, clock: HandClock, lost: str
) -> None:
    chats, door = Chats(per_second=100_000), Door(sqlite, clock)
    await door.comes("hello")
    door.waits(DM_KEY, AskKind.QUESTION, delivered=False)
    if lost == "card":
        await sqlite.write(outbox.give_up_chat, "telegram", "7", "lost")
    async with delivering(sqlite, chats, clock=clock):
        await until(lambda: lost == "card" or chats.sent)
        chats.gone = {"7"}
        await door.comes("red")
        await until(lambda: door.rows("SELECT count(*) FROM outbox WHERE state = 'pending'") == [0])
    assert chats.edited == []
    assert door.rows("SELECT count(*) FROM outbox WHERE state = 'dead'") == [int(lost == "card")]
