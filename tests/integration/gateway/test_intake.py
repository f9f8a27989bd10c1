"""What becomes of each message at the door, on both databases."""

from dataclasses import replace

from gateway.chats.access import AccessRules
from gateway.chats.intake_result import IntakeOutcome
from gateway.texts import say
from sessions import people
from sessions.db import Database
from sessions.keys import Address, Platform, Sender
from sessions.messages import Inbound
from sessions.records import AskKind, RunStatus
from tests.conftest import HandClock
from tests.integration.gateway.intake_in_process import DM_KEY, EDIT, GROUP, GROUP_KEY, MOVED, NAMES, Door, tap


async def test_a_double_is_taken_once_and_a_command_executed_once(door: Door):
    for _ in range(2):
        await door.comes("hello", dedup_key="same")
        await door.comes("/new", dedup_key="same command")
        await door.comes("hello again", dedup_key="third")
    assert door.sent() == [say("session.new")]
    assert len(door.keys()) == 2
    assert IntakeOutcome.JOINED not in door.outcomes


async def test_what_became_of_each_event_is_said(quick: Door):
    await quick.comes("hello")
    await quick.comes("and one thing more")
    await quick.comes("/status")
    await quick.comes("hello", user="66")
    await quick.comes("hello", GROUP, user="66", chat="-200")
    assert quick.outcomes == ["taken", "joined", "taken", "stranger", "ignored"]


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
    quick.rules = AccessRules(pair_strangers=False)
    await quick.comes("hello", user="66")
    assert quick.sent() == []
    code = await quick.database.write(people.owner_code, "telegram", quick.clock())
    await quick.comes(f"/start {code}", user="66")
    assert "You are the owner now" in quick.sent()[0]


async def test_who_is_in_already_can_still_become_the_owner(quick: Door):
    quick.rules = AccessRules()
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


async def test_an_edit_counts_while_it_is_unread_and_once(door: Door):
    first = await door.comes("hello")
    for _ in range(2):
        await edit(door, first, "good day")
    assert "good day" in door.rows("SELECT body FROM inbox WHERE outcome IS NULL")[0]
    assert door.sent() == []


async def edit(door: Door, original: Inbound, new: str, key: str = "edit") -> None:
    await door.deliver(replace(original, text=new, kind=EDIT, dedup_key=key))


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


async def test_a_mention_that_is_added_by_an_edit_counts_once(door: Door):
    heard = await door.comes("what is for lunch", GROUP, user="8", mentioned=False)
    later = replace(heard, text="what is for lunch today", kind=EDIT, dedup_key="edit")
    await door.deliver(later)
    await door.deliver(replace(later, mentioned=True, dedup_key="added"))
    await door.deliver(replace(later, mentioned=True, dedup_key="added"))
    (body,) = door.rows("SELECT body FROM inbox")
    assert body.count("[Bob] what is for lunch today") == 1
    assert door.rows("SELECT count(*) FROM overheard") == [0]


async def test_an_edit_of_what_was_overheard_changes_what_comes_along(door: Door):
    heard = await door.comes("lunch at one", GROUP, user="8", mentioned=False)
    await edit(door, heard, "lunch at two")
    await door.comes("when is lunch", GROUP)
    (body,) = door.rows("SELECT body FROM inbox")
    assert "lunch at two" in body
    assert "lunch at one" not in body


async def test_overheard_words_are_few_and_leave_no_other_trace(quick: Door):
    for number in range(40):
        await quick.comes("w" * 2_000, GROUP, mentioned=False, message_id=str(number))
    assert quick.rows("SELECT count(*) FROM overheard") == [30]
    assert quick.rows("SELECT max(length(text)) FROM overheard") == [len("w" * 1_000 + "… [1,000 more characters]")]
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
        await door.deliver(moved)
    number = door.waits(GROUP_KEY, AskKind.QUESTION)
    await door.comes("blue", GROUP, user="8", chat="-100200")
    assert door.answer(number) == "[Bob] blue"
    await door.comes("/new", GROUP, chat="-100200")
    assert door.rows("SELECT chat FROM outbox ORDER BY id DESC LIMIT 1") == ["-100200"]
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
