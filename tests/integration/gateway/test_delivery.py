"""What waits in the outbox goes out, in order and without more looking than needed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text
from structlog.testing import capture_logs

from adapters.base import Adapter, Deliver, Pace, TryLater, Undeliverable
from gateway.chats import delivery
from gateway.chats.delivery import IN_HAND, Delivery
from gateway.chats.intake import Intake
from gateway.chats.presence import Presence
from gateway.chats.sending import RateLimiter
from gateway.observe.health import Standstills
from gateway.texts import say
from sessions import outbox
from sessions.clock import Clock, now_ms
from sessions.db import Database
from sessions.keys import Address, ChatKind, Platform
from sessions.lease_owners import this_owner
from sessions.messages import Attachment, AttachmentKind, Content, Outbound, Piece, Receipt
from sessions.records import AskKind, Route
from tests.app import make_app
from tests.conftest import HandClock
from tests.integration.gateway.intake_in_process import DM_KEY, OPEN, IntakeHarness


class Chats(Adapter):
    """A platform that takes everything, as quickly as it is allowed to."""

    platform = Platform.TELEGRAM

    def __init__(self, per_second: float) -> None:
        self.pace = Pace(per_second=per_second, dm=0, group=0, edit=0)
        self.sent: list[tuple[str, str]] = []
        self.edited: list[tuple[str, str]] = []
        self.gone: set[str] = set()
        self.unheard = False
        self.never_heard: set[str] = set()
        self.refused = 0
        self.moved = False
        self.tries = 0
        self.open = asyncio.Event()
        self.open.set()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        return [{"text": part} for part in outbound.text.split("|")]

    async def send(self, address: Address, piece: Piece) -> Receipt:
        await self.open.wait()
        if address.chat_id in self.gone:
            raise Undeliverable("gone")
        if self.refused:
            self.refused -= 1
            raise TryLater("connection refused")
        if self.moved:
            self.moved = False
            raise TryLater("it goes elsewhere", after=0)
        if self.unheard or piece["text"] in self.never_heard:
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


class TypingChats(Chats):
    """It can show that the bot is typing, when it can be reached at all."""

    typing_every = 4.0
    silent = False
    probes = 0

    async def typing(self, address: Address) -> None:
        self.probes += 1
        if self.silent:
            raise TryLater("no answer")


class NoPreviews(Presence):
    def __init__(self) -> None:
        self.cleared: list[str] = []
        self.ended: list[str] = []

    async def take_preview(self, run_id: str, reply_to: str | None) -> str | None:
        return None

    def mark_final(self, run_id: str) -> None:
        raise NotImplementedError

    async def clear(self, run_id: str) -> None:
        self.cleared.append(run_id)

    def end_without_answer(self, run_ids: Sequence[str]) -> None:
        self.ended += run_ids


def make_delivery(
    database: Database,
    chats: Chats,
    previews: NoPreviews,
    clock: Clock = now_ms,
    *,
    standstills: Standstills | None = None,
    home: Path = Path("/nonexistent"),
) -> Delivery:
    app = make_app(home, database, clock=clock)
    app.standstills = standstills or app.standstills
    app.access["telegram"] = OPEN
    return Delivery(app, chats, Intake(app), RateLimiter(chats.pace), previews)


@asynccontextmanager
async def delivering(
    database: Database, chats: Chats, previews: NoPreviews | None = None, clock: Clock = now_ms, **more: Any
) -> AsyncGenerator[Delivery]:
    under_test = make_delivery(database, chats, previews or NoPreviews(), clock, **more)
    task = asyncio.create_task(under_test.run())
    try:
        yield under_test
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def put(conn: Connection, chat: str, said: str, **more: Any) -> None:
    address = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id=chat)
    outbox.put(
        conn,
        Route(address=address),
        Content(text=said),
        now_ms(),
        dedup_key=f"{chat}:{said}",
        session_key="",
        **more,
    )


async def until(ready: Any) -> None:
    async with asyncio.timeout(30):
        while not ready():
            await asyncio.sleep(0.005)


async def test_a_message_that_goes_elsewhere_is_no_failure_of_the_platform(sqlite: Database) -> None:
    chats = Chats(per_second=1_000)
    chats.moved = True
    with capture_logs() as logged:
        async with delivering(sqlite, chats):
            await sqlite.write(put, "7", "hello")
            await until(lambda: chats.sent == [("7", "hello")])
    assert not [line for line in logged if line["event"] == "platform.not_sending"]


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
    under_test = make_delivery(sqlite, chats, previews)
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
    chats, intake = Chats(per_second=100_000), IntakeHarness(database, clock)
    await intake.comes("hello")
    number = intake.waits(DM_KEY, AskKind.QUESTION, card="Which?|red or blue", delivered=False)
    await intake.comes("red")
    async with delivering(database, chats, clock=clock):
        await until(lambda: chats.edited)
    assert chats.sent == [("7", "Which?"), ("7", "red or blue")]
    assert chats.edited == [("2", "rm -rf *\n\nAnswered by Ann: red")]
    assert intake.closed() == [number]


def tell(conn: Connection) -> tuple[str, int]:
    """State and due time of the latest."""
    state, due = conn.execute(text("SELECT state, due_at FROM outbox ORDER BY id DESC")).first() or ("", 0)
    return state, due


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between tries for longer than it takes to look at the outbox."""
    monkeypatch.setattr(delivery, "_BACKOFF", (0.01,))
    for name in ("PROBE_PAUSES", "TRY_PAUSES", "BLIND_PAUSES"):
        monkeypatch.setattr(delivery, name, (0.01,))


async def states(database: Database) -> list[str]:
    query = text("SELECT state FROM outbox ORDER BY id")
    return await database.read(lambda conn: list(conn.scalars(query)))


async def until_states(database: Database, *wanted: str) -> None:
    async with asyncio.timeout(30):
        while await states(database) != list(wanted):
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("quick")
async def test_what_may_have_arrived_is_not_risked_again_before_the_chat_takes_a_harmless_call(database: Database):
    chats = TypingChats(per_second=100_000)
    chats.unheard = chats.silent = True
    async with delivering(database, chats) as under_test:
        await database.write(put, "1", "hello")
        await until(lambda: chats.probes >= 3)
        assert chats.tries == 1
        assert under_test.failure == "no answer"
        chats.unheard = chats.silent = False
        await until_states(database, "sent")
        assert chats.sent == [("1", "hello")]
        assert under_test.failure is None


@pytest.mark.usefixtures("quick")
async def test_nor_more_than_an_hour_after_it_was_said(sqlite: Database):
    chats, later = TypingChats(per_second=100_000), 0
    chats.unheard = chats.silent = True
    async with delivering(sqlite, chats, clock=lambda: now_ms() + later):
        await sqlite.write(put, "1", "hello")
        await until(lambda: chats.probes >= 2)
        chats.unheard = chats.silent = False
        later = outbox.MAX_AGE_MS
        await until_states(sqlite, "dead", "sent")
    assert chats.sent == [("1", say("limits.answer_not_sent"))]


@pytest.mark.parametrize("jump_ms", [3_600_000, 31 * 24 * 3_600_000])
@pytest.mark.usefixtures("quick")
async def test_a_process_that_stood_still_and_a_clock_that_was_set_make_no_message_old(sqlite: Database, jump_ms: int):
    later = 0
    clock = lambda: now_ms() + later  # noqa: E731
    chats, standstills = TypingChats(per_second=100_000), Standstills(clock)
    chats.unheard = chats.silent = True
    standstills.check()
    async with delivering(sqlite, chats, clock=clock, standstills=standstills):
        await sqlite.write(put, "1", "hello")
        await until(lambda: chats.probes >= 2)
        chats.unheard = chats.silent = False
        later = jump_ms
        await until_states(sqlite, "sent")
    assert chats.sent == [("1", "hello")]


@pytest.mark.usefixtures("quick")
async def test_where_other_calls_get_through_it_is_tried_three_times_more_and_then_people_hear_of_it(
    database: Database,
):
    chats = TypingChats(per_second=100_000)
    await IntakeHarness(database, HandClock()).comes("hello")  # the owner has a chat of their own

    chats.never_heard = {"hello"}
    async with delivering(database, chats):
        await database.write(put, "1", "hello")
        await until_states(database, "dead", "sent", "sent")
    not_delivered = say("limits.not_delivered", chat="1", why="no answer")
    assert sorted(chats.sent) == [("1", say("limits.answer_not_sent")), ("7", not_delivered)]
    assert chats.tries == 1 + outbox.FURTHER_TRIES


@pytest.mark.usefixtures("quick")
async def test_the_owner_hears_once_an_hour_of_a_chat_that_is_gone_and_the_chat_nothing(sqlite: Database):
    chats = TypingChats(per_second=100_000)
    await IntakeHarness(sqlite, HandClock()).comes("hello")

    chats.gone = {"1"}
    async with delivering(sqlite, chats):
        for said in ("one", "two"):
            await sqlite.write(put, "1", said)
        async with asyncio.timeout(30):
            while sorted(await states(sqlite)) != ["dead", "dead", "sent"]:
                await asyncio.sleep(0.005)
    assert chats.sent == [("7", say("limits.not_delivered", chat="1", why="gone"))]


@pytest.mark.usefixtures("quick")
async def test_what_never_reached_the_wire_is_tried_as_often_as_it_takes(sqlite: Database):
    chats = TypingChats(per_second=100_000)
    chats.refused = 20
    async with delivering(sqlite, chats):
        await sqlite.write(put, "1", "hello")
        await until_states(sqlite, "sent")
    assert (chats.refused, chats.probes) == (0, 0)


async def test_where_there_is_no_harmless_call_the_next_try_comes_later(sqlite: Database) -> None:
    chats = Chats(per_second=100_000)
    chats.unheard = True
    async with delivering(sqlite, chats):
        await sqlite.write(put, "1", "hello")
        async with asyncio.timeout(30):
            while (told := await sqlite.read(tell))[0] != "unknown":
                await asyncio.sleep(0.01)
    assert told[1] - now_ms() > (delivery.BLIND_PAUSES[0] - 10) * 1_000


@pytest.mark.parametrize("lost", ["card", "edit"])
async def test_a_card_that_cannot_be_closed_leaves_no_dead_letter(
    sqlite: Database, clock: HandClock, lost: str
) -> None:
    chats, intake = Chats(per_second=100_000), IntakeHarness(sqlite, clock)
    await intake.comes("hello")
    intake.waits(DM_KEY, AskKind.QUESTION, delivered=False)
    if lost == "card":
        await sqlite.write(outbox.give_up_chat, "telegram", "7", "lost")
    async with delivering(sqlite, chats, clock=clock):
        await until(lambda: lost == "card" or chats.sent)
        chats.gone = {"7"}
        await intake.comes("red")
        await until(lambda: intake.rows("SELECT count(*) FROM outbox WHERE state = 'pending'") == [0])
    assert chats.edited == []
    assert intake.rows("SELECT count(*) FROM outbox WHERE state = 'dead'") == [int(lost == "card")]


async def test_a_file_is_sent_only_from_where_tools_put_it(sqlite: Database, tmp_path: Path) -> None:
    class FileChats(Chats):
        def render(self, outbound: Outbound) -> Sequence[Piece]:
            return [{"text": file.name, "filename": file.name, "path": file.path} for file in outbound.attachments]

    def put_file(conn: Connection, path: Path) -> None:
        body = Content(attachments=(Attachment(kind=AttachmentKind.FILE, name=path.name, path=str(path)),))
        address = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id=path.name)
        outbox.put(conn, Route(address=address), body, now_ms(), dedup_key=str(path), session_key="")

    (tmp_path / "outgoing").mkdir()
    (tmp_path / "outgoing" / "link").symlink_to(tmp_path / "id_rsa")
    chats = FileChats(per_second=100_000)
    async with delivering(sqlite, chats, home=tmp_path):
        for path in ("id_rsa", "outgoing/link", "outgoing/../id_ed25519", "outgoing/report.pdf"):
            await sqlite.write(put_file, tmp_path / path)
        await until(lambda: len(sqlite.read_now(outbox.dead_letters)) == 3)
        await until(lambda: chats.sent)
    assert chats.sent == [("report.pdf", "report.pdf")]


@pytest.mark.usefixtures("quick")
async def test_a_send_that_another_process_left_when_it_was_killed_is_tried_again_soon_and_only_after_a_probe(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery, "RECOVER_SECONDS", 0.02)
    dead = f"{this_owner().partition(':')[0]}:999999999:1:00000000"

    def left_by(conn: Connection) -> None:
        put(conn, "1", "hello")
        cut = {"who": dead, "until": now_ms() + delivery.LEASE_MS}
        conn.execute(text("UPDATE outbox SET state = 'sending', lease_owner = :who, lease_until = :until"), cut)

    chats = TypingChats(per_second=100_000)
    async with delivering(database, chats) as under_test:
        await database.write(left_by)
        async with asyncio.timeout(30):
            while not chats.sent:  # as the supervisor does each second
                under_test.wake()
                await asyncio.sleep(0.01)
    assert (chats.sent, chats.probes) == ([("1", "hello")], 1)
