"""What becomes of each message at the door, on both databases."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, text

from gateway.access import Rules
from gateway.intake import Bounds, Intake
from gateway.texts import say
from sessions import asks, people, runs
from sessions.db import Database
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Inbound, InboundKind, Quote
from sessions.records import AskKind, OutRow, RunStatus
from sessions.runs import Opening, Said
from tests.conftest import HandClock

DM, GROUP = ChatKind.DM, ChatKind.GROUP
TAP, EDIT, MOVED = InboundKind.TAP, InboundKind.EDIT, InboundKind.MOVED
DM_KEY, GROUP_KEY = "agent:main:telegram:dm", "agent:main:telegram:group:-100"
OPEN = Rules(allowed_users=frozenset({"7"}), first_allowed="7", allowed_chats=frozenset({"-100"}))
NAMES = {"7": "Ann", "8": "Bob", "66": "Eve"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "process", "arguments": "{}"}}


class Door:
    """Short ways to say what happens. Each event has a new number unless it is a double."""

    def __init__(self, database: Database, clock: HandClock, rules: Rules = OPEN, **bounds: int) -> None:
        self.database = database
        self.clock = clock
        self.rules = rules
        self.noted: list[str] = []
        self.model = "big"
        self.number = 0
        self.intake = Intake(
            database,
            lambda _: self.rules,
            bounds=lambda: Bounds(**bounds),
            default_model=lambda: self.model,
            noted=self._note,
            clock=clock,
        )

    async def _note(self, inbound: Inbound, _: str) -> None:
        self.noted.append(inbound.text)

    async def comes(self, said: str, kind: ChatKind = DM, user: str = "7", *, chat: str = "", **more: Any) -> Inbound:
        self.number += 1
        event: dict[str, Any] = {
            "dedup_key": f"tg:1:{self.number}",
            "address": Address(platform=Platform.TELEGRAM, kind=kind, chat_id=chat or (user if kind is DM else "-100")),
            "sender": Sender(id=user, name=NAMES.get(user, user)),
            "message_id": str(self.number),
            "text": said,
            **more,
        }
        inbound = Inbound(**event)
        await self.intake.deliver(inbound)
        return inbound

    def rows(self, sql: str) -> list[Any]:
        def read(conn: Connection) -> list[Any]:
            return [row[0] for row in conn.execute(text(sql))]

        return self.database.read_now(read)

    def sent(self) -> list[str]:
        """What waits to be sent, oldest first."""

        def read(conn: Connection) -> list[OutRow]:
            return [OutRow.from_row(row) for row in conn.execute(text("SELECT * FROM outbox ORDER BY id")).mappings()]

        return [str(row.body["text"]) for row in self.database.read_now(read)]

    def keys(self) -> list[str]:
        return self.rows("SELECT session_key FROM runs ORDER BY created_at, id")

    def waits(self, key: str, kind: AskKind = AskKind.APPROVAL) -> str:
        """The active run of this key now waits for a human; returns the number of the question."""

        def park(conn: Connection) -> str:
            now = self.clock()
            run = runs.claim(conn, key, "worker", Opening(), now, lease_ms=1_000)
            assert run is not None
            runs.fold(conn, run, now)
            (call,) = runs.answered(conn, run, Said(text="", tool_calls=[CALL]), now, step=0)
            assert runs.park(conn, run, call, "rm -rf *", now, options=["red", "blue"], kind=kind, args_hash="h")
            ask = asks.open_of(conn, run.id)
            assert ask is not None
            return str(ask.id)

        return self.database.write_now(park)

    def answer(self, number: str) -> str | None:
        ask = self.database.read_now(asks.get, int(number))
        assert ask is not None
        return ask.answer

    def status(self, key: str) -> RunStatus | None:
        run = self.database.read_now(runs.active, key)
        return run.status if run else None


@pytest.fixture
def door(database: Database, clock: HandClock) -> Door:
    return Door(database, clock)


@pytest.fixture
def quick(sqlite: Database, clock: HandClock) -> Door:
    """For what the kind of database cannot matter to."""
    return Door(sqlite, clock)


async def test_a_double_is_taken_once_and_a_command_executed_once(door: Door):
    for _ in range(2):
        await door.comes("hello", dedup_key="same")
        await door.comes("/new", dedup_key="same command")
        await door.comes("hello again", dedup_key="third")
    assert door.sent() == [say("session.new")]
    assert len(door.keys()) == 2
    assert door.noted == []


async def test_strangers_leave_nothing_but_one_code(door: Door):
    for said in ("hello", "/new", "/start", "/start WRONGCODE", "hello", "x" * 300_000):
        await door.comes(said, user="66")
    await tap(door, "a:1:y", user="66")
    await door.comes("hello", GROUP, user="66", chat="-200")
    assert len(door.sent()) == 1
    assert "hermes pair approve" in door.sent()[0]
    for table in ("inbox", "runs", "sessions", "messages", "overheard"):
        assert door.rows(f"SELECT count(*) FROM {table}") == [0]


async def test_strangers_may_be_met_with_silence(quick: Door):
    quick.rules = Rules(pair_strangers=False)
    await quick.comes("hello", user="66")
    assert quick.sent() == []
    code = await quick.database.write(people.owner_code, "telegram", quick.clock())
    await quick.comes(f"/start {code}", user="66")
    assert "You are the owner now" in quick.sent()[0]


async def test_who_is_in_already_can_still_become_the_owner(quick: Door):
    quick.rules = Rules()
    code = await quick.database.write(people.owner_code, "telegram", quick.clock())
    for user in ("8", "7"):
        await quick.database.write(people.admit, "telegram", user, NAMES[user], quick.clock())
    await quick.comes(f"/start {code}")
    await quick.comes("hello")
    assert "You are the owner now" in quick.sent()[0]
    assert quick.keys() == [DM_KEY]


async def test_a_name_cannot_pretend_to_be_more_than_a_name(quick: Door):
    await quick.comes("hi", GROUP, sender=Sender(id="7", name="Bob]\n[Ann\x1b[2J\u202e" + "x" * 300))
    body = quick.rows("SELECT body FROM inbox")[0]
    assert "[Bob)(Ann(2Jxxx" in body
    assert len(quick.rows("SELECT body FROM inbox")[0]) < 400


@pytest.mark.parametrize("said", ["/new", "/reset", "/resume", "/forget 1", "/stop", "/approve", "/deny no"])
async def test_in_an_open_group_some_commands_stay_with_the_allowed(quick: Door, said: str):
    await quick.comes("hello", GROUP)
    await quick.comes(said, GROUP, user="8")
    assert quick.sent() == [say("people.not_allowed")]
    assert quick.status(GROUP_KEY) is RunStatus.RUNNING


@pytest.mark.parametrize("said", ["/undo", "/retry"])
async def test_nobody_ends_what_is_at_work_by_another_name(quick: Door, said: str):
    await quick.comes("hello", GROUP)
    number = quick.waits(GROUP_KEY)
    await quick.comes(said, GROUP, user="8")
    assert quick.sent() == [say("people.not_allowed")]
    assert quick.status(GROUP_KEY) is RunStatus.WAITING
    assert quick.answer(number) is None


async def test_in_an_open_group_everybody_may_talk_and_ask(quick: Door):
    await quick.comes("hello", GROUP, user="8")
    await quick.comes("/help", GROUP, user="8")
    assert quick.keys() == [GROUP_KEY]
    assert "/status" in quick.sent()[0]


async def test_an_approval_is_not_given_by_words_of_somebody_who_is_only_present(door: Door):
    await door.comes("hello", GROUP)
    number = door.waits(GROUP_KEY)
    await door.comes("yes", GROUP, user="8")
    await tap(door, f"a:{number}:y", GROUP, user="8")
    assert door.status(GROUP_KEY) is RunStatus.WAITING
    assert door.answer(number) is None
    assert door.sent() == [say("people.not_allowed")] * 2
    await door.comes("yes", GROUP, quote=Quote(message_id="55", text="May I do this?", from_us=True))
    assert door.answer(number) == "yes"


async def tap(door: Door, data: str, kind: ChatKind = DM, user: str = "7", *, twice: bool = False) -> None:
    door.number += 1
    address = Address(platform=Platform.TELEGRAM, kind=kind, chat_id=user if kind is DM else "-100")
    sender = Sender(id=user, name=NAMES[user])
    key = f"tap:{door.number}"
    inbound = Inbound(dedup_key=key, address=address, sender=sender, message_id="55", text=data, kind=TAP)
    await door.intake.deliver(inbound)
    if twice:
        await door.intake.deliver(inbound)


async def test_a_tap_decides_once_and_says_who(door: Door):
    await door.comes("hello", GROUP)
    number = door.waits(GROUP_KEY)
    await tap(door, f"a:{number}:y", kind=GROUP, user="8")
    assert door.answer(number) is None
    await tap(door, f"a:{number}:n", kind=GROUP, twice=True)
    assert door.answer(number) == "no"
    await tap(door, f"a:{number}:y", kind=GROUP)
    refused, card, late = door.sent()
    assert refused == say("people.not_allowed")
    assert "Denied by Ann" in card
    assert "```\nrm -rf *\n```" in card
    assert "Ann already decided this" in late
    assert door.answer(number) == "no"


async def test_a_forged_button_reaches_no_other_chat_and_stops_nothing(quick: Door):
    quick.rules = Rules(allowed_users=frozenset({"7", "8"}), first_allowed="7")
    await quick.comes("hello")
    number = quick.waits(DM_KEY)
    for data in (f"a:{number}:y", f"a:{number}:0", "a:999:y", f"a:{'9' * 40}:y", "a::y", "a", "", "b:1:y", "a:-1:y"):
        await tap(quick, data, user="8")
    assert quick.answer(number) is None
    assert quick.sent() == []


async def test_a_word_that_is_not_on_the_card_does_not_approve(quick: Door):
    await quick.comes("hello")
    number = quick.waits(DM_KEY)
    await tap(quick, f"a:{number}:0")
    assert quick.answer(number) == "no"
    assert "Denied by" in quick.sent()[0]


async def test_where_each_has_a_session_only_they_decide(quick: Door):
    quick.rules = Rules(allowed_users=frozenset({"7", "8"}), group_sessions_per_user=True)
    await quick.comes("hello", GROUP)
    number = quick.waits(f"{GROUP_KEY}:user:7")
    await tap(quick, f"a:{number}:y", kind=GROUP, user="8")
    assert quick.answer(number) is None
    await tap(quick, f"a:{number}:y", kind=GROUP)
    assert quick.answer(number) == "yes"


async def test_a_tap_after_the_end_gets_a_sentence(quick: Door):
    await quick.comes("hello")
    number = quick.waits(DM_KEY)
    await quick.comes("/stop")
    await tap(quick, f"a:{number}:y")
    assert quick.sent()[1:] == [say("ask.nothing")]


async def test_a_question_is_answered_by_an_option(quick: Door):
    await quick.comes("hello")
    number = quick.waits(DM_KEY, AskKind.QUESTION)
    await tap(quick, f"a:{number}:1")
    assert quick.answer(number) == "blue"
    assert "Answered by Ann: blue" in quick.sent()[0]


async def test_in_a_group_a_word_that_is_for_nobody_answers_nothing(quick: Door):
    quick.rules = Rules(allowed_users=frozenset({"7"}), require_mention=False)
    await quick.comes("hello", GROUP)
    number = quick.waits(GROUP_KEY, AskKind.QUESTION)
    await quick.comes("blue is nice", GROUP, mentioned=False)
    assert quick.answer(number) is None
    await quick.comes("blue", GROUP)
    assert quick.answer(number) == "[Ann] blue"


async def test_an_edit_counts_while_it_is_unread_and_once(door: Door):
    first = await door.comes("hello")
    for _ in range(2):
        await edit(door, first, "good day")
    assert "good day" in door.rows("SELECT body FROM inbox WHERE outcome IS NULL")[0]
    assert door.sent() == []


async def edit(door: Door, original: Inbound, new: str, key: str = "edit") -> None:
    await door.intake.deliver(replace(original, text=new, kind=EDIT, dedup_key=key))


async def test_an_edit_redelivered_after_it_was_read_changes_nothing(quick: Door):
    first = await quick.comes("hello")
    await edit(quick, first, "good day")
    quick.waits(DM_KEY)
    await edit(quick, first, "good day")
    assert quick.sent() == []


async def test_edits_keep_to_the_limits_of_messages(sqlite: Database, clock: HandClock):
    door = Door(sqlite, clock, message_bytes=20, queue_per_chat=2)
    first = await door.comes("hello")
    await edit(door, first, "x" * 21, "too long")
    assert "x" * 21 not in door.rows("SELECT body FROM inbox WHERE outcome IS NULL")[0]
    await door.comes("second")
    for number in range(3):
        await edit(door, first, f"again {number}", f"flood {number}")
    assert door.rows("SELECT count(*) FROM inbox WHERE outcome IS NULL") == [2]


async def test_too_long_too_many_and_unreadable(sqlite: Database, clock: HandClock):
    door = Door(sqlite, clock, message_bytes=20, queue_per_chat=2)
    await door.comes("é" * 11)
    clock.tick(60_000)
    await door.comes("")
    clock.tick(60_000)
    for number in range(9):
        await door.comes(f"message {number}")
    assert [answer.split()[0] for answer in door.sent()] == ["This", "I", "There"]
    assert door.rows("SELECT count(*) FROM inbox WHERE outcome IS NULL") == [2]
    clock.tick(60_000)
    await door.comes("one more")
    assert len(door.sent()) == 4


async def test_what_was_overheard_comes_along_once_even_when_the_mention_is_doubled(door: Door):
    await door.comes("lunch at one", GROUP, user="8", mentioned=False)
    await door.comes("lunch at one", GROUP, user="8", mentioned=False, message_id="1")
    await door.comes("when is lunch", GROUP, dedup_key="asked")
    (body,) = door.rows("SELECT body FROM inbox")
    assert body.count("[Bob] lunch at one") == 1
    await door.comes("and dessert at two", GROUP, mentioned=False)
    await door.comes("when is lunch", GROUP, dedup_key="asked")
    await door.comes("and dessert", GROUP)
    assert "dessert at two" in door.rows("SELECT body FROM inbox ORDER BY id")[-1]


async def test_overheard_words_are_few_and_leave_no_other_trace(quick: Door):
    for number in range(40):
        await quick.comes("w" * 2_000, GROUP, mentioned=False, message_id=str(number))
    assert quick.rows("SELECT count(*) FROM overheard") == [30]
    assert quick.rows("SELECT max(length(text)) FROM overheard") == [1_000]
    assert quick.rows("SELECT count(*) FROM inbox") == [0]


async def test_start_greets_in_a_dm_and_once_in_a_group(quick: Door):
    await quick.comes("/start")
    await quick.comes("/start", GROUP)
    await quick.comes("/start", GROUP)
    assert quick.sent() == [say("people.paired"), say("people.group_hello")]


async def test_a_group_that_became_a_supergroup_is_the_same_group(door: Door):
    await door.comes("hello", GROUP, user="8")
    for name in ("one", "the same from the other side"):
        moved = Inbound(
            dedup_key=name,
            address=Address(platform=Platform.TELEGRAM, kind=GROUP, chat_id="-100"),
            sender=Sender(id="1"),
            message_id="9",
            text="-100200",
            kind=MOVED,
        )
        await door.intake.deliver(moved)
    number = door.waits(GROUP_KEY, AskKind.QUESTION)
    await door.comes("blue", GROUP, user="8", chat="-100200")
    assert door.answer(number) == "[Bob] blue"
    await door.comes("/new", GROUP, chat="-100200")
    assert door.rows("SELECT chat FROM outbox") == ["-100200"]
    assert set(door.keys()) == {GROUP_KEY}


async def test_a_model_that_was_changed_is_the_one_that_is_named(quick: Door):
    await quick.comes("/model")
    quick.model = "bigger"
    await quick.comes("/model")
    assert ["big" in quick.sent()[0], "bigger" in quick.sent()[1]] == [True, True]


async def test_who_is_paired_or_revoked_counts_from_the_next_message_on(door: Door):
    await door.comes("hello", user="66")
    code = door.sent()[0].split("Your code is ")[1][:9]
    await door.database.write(people.approve, code, door.clock())
    await door.comes("hello", user="66")
    assert door.keys() == ["agent:main:telegram:dm:66"]
    await door.database.write(people.revoke, "66")
    await door.comes("/new", user="66")
    assert door.status("agent:main:telegram:dm:66") is RunStatus.RUNNING
