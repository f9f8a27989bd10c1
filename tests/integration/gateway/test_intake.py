"""What becomes of each message at the intake, on both databases."""

from dataclasses import replace

from gateway.chats.access import AccessRules
from gateway.chats.intake import IntakeOutcome
from gateway.config.sections import PersonSection
from gateway.texts import say
from sessions import people
from sessions.db import Database
from sessions.keys import Address, Platform, Sender
from sessions.messages import Inbound
from sessions.records import AskKind, RunStatus
from sessions.spending import NO_LIMIT, DayLimit
from tests.conftest import HandClock
from tests.integration.gateway.intake_in_process import DM_KEY, EDIT, GROUP, GROUP_KEY, MOVED, NAMES, IntakeHarness, tap


async def test_a_double_is_taken_once_and_a_command_executed_once(intake: IntakeHarness):
    for _ in range(2):
        await intake.comes("hello", dedup_key="same")
        await intake.comes("/new", dedup_key="same command")
        await intake.comes("hello again", dedup_key="third")
    assert intake.sent() == [say("session.new")]
    assert len(intake.keys()) == 2
    assert IntakeOutcome.JOINED not in intake.outcomes


async def test_two_ids_of_one_person_have_the_rights_and_the_day_of_one(intake: IntakeHarness):
    eve = PersonSection(name="eve", ids=["telegram:8"])
    everybody = DayLimit(messages=2)
    intake.rules = AccessRules(allowed_users=frozenset({"*"}), owner="7", people={"8": eve}, day_limit=everybody)
    for first, alias in (("7", "70"), ("8", "80"), ("9", "90")):
        await intake.database.write(people.join_ids, "telegram", alias, first)
        for user in (first, alias, alias):
            await intake.comes("hello", user=user)
    used = intake.rows("SELECT who || ' ' || messages FROM usage ORDER BY who")
    assert used == ["eve 2", "telegram:7 2", "telegram:9 2"]
    intake.rules = replace(intake.rules, day_limit=NO_LIMIT)
    # The owner stays the owner under the other id.
    number = intake.waits(DM_KEY)
    await intake.comes("yes", user="70", chat="70")
    assert intake.answer(number) == "yes"


async def test_what_became_of_each_event_is_said(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("hello")
    await sqlite_intake.comes("and one thing more")
    await sqlite_intake.comes("/status")
    await sqlite_intake.comes("hello", user="66")
    await sqlite_intake.comes("hello", GROUP, user="66", chat="-200")
    assert sqlite_intake.outcomes == ["taken", "joined", "taken", "stranger", "ignored"]


async def test_strangers_leave_nothing_but_one_code(intake: IntakeHarness):
    for said in ("hello", "/new", "/start", "/start WRONGCODE", "hello", "x" * 300_000):
        await intake.comes(said, user="66")
    await tap(intake, "a:1:y", user="66")
    await intake.comes("hello", GROUP, user="66", chat="-200")
    assert len(intake.sent()) == 1
    assert "hermes pair approve" in intake.sent()[0]
    for table in ("inbox", "runs", "sessions", "messages", "overheard"):
        assert intake.rows(f"SELECT count(*) FROM {table}") == [0]


async def test_strangers_may_be_met_with_silence(sqlite_intake: IntakeHarness):
    sqlite_intake.rules = AccessRules(pair_strangers=False)
    await sqlite_intake.comes("hello", user="66")
    assert sqlite_intake.sent() == []
    code = await sqlite_intake.database.write(people.owner_code, "telegram", sqlite_intake.clock())
    await sqlite_intake.comes(f"start {code}", user="66")  # without its slash, too
    assert "You are the owner now" in sqlite_intake.sent()[0]


async def test_who_is_in_already_can_still_become_the_owner(sqlite_intake: IntakeHarness):
    sqlite_intake.rules = AccessRules()
    code = await sqlite_intake.database.write(people.owner_code, "telegram", sqlite_intake.clock())
    for user in ("8", "7"):
        await sqlite_intake.database.write(people.admit, "telegram", user, NAMES[user], sqlite_intake.clock())
    await sqlite_intake.comes(f"/start {code}")
    await sqlite_intake.comes("hello")
    assert "You are the owner now" in sqlite_intake.sent()[0]
    assert sqlite_intake.keys() == [DM_KEY]


async def test_a_name_cannot_pretend_to_be_more_than_a_name(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("hi", GROUP, sender=Sender(id="7", name="Bob]\n[Ann\x1b[2J\u202e" + "x" * 300))
    body = sqlite_intake.rows("SELECT body FROM inbox")[0]
    assert "[Bob)(Ann(2Jxxx" in body
    assert len(sqlite_intake.rows("SELECT body FROM inbox")[0]) < 400


async def test_an_edit_counts_while_it_is_unread_and_once(intake: IntakeHarness):
    first = await intake.comes("hello")
    for _ in range(2):
        await edit(intake, first, "good day")
    assert "good day" in intake.rows("SELECT body FROM inbox WHERE outcome IS NULL")[0]
    assert intake.sent() == []


async def edit(intake: IntakeHarness, original: Inbound, new: str, key: str = "edit") -> None:
    await intake.deliver(replace(original, text=new, kind=EDIT, dedup_key=key))


async def test_an_edit_redelivered_after_it_was_read_changes_nothing(sqlite_intake: IntakeHarness):
    first = await sqlite_intake.comes("hello")
    await edit(sqlite_intake, first, "good day")
    sqlite_intake.waits(DM_KEY)
    await edit(sqlite_intake, first, "good day")
    assert sqlite_intake.sent() == []


async def test_edits_keep_to_the_limits_of_messages(sqlite: Database, clock: HandClock):
    intake = IntakeHarness(sqlite, clock, message_bytes=20, queue_per_chat=2)
    first = await intake.comes("hello")
    await edit(intake, first, "x" * 21, "too long")
    assert "x" * 21 not in intake.rows("SELECT body FROM inbox WHERE outcome IS NULL")[0]
    await intake.comes("second")
    for number in range(3):
        await edit(intake, first, f"again {number}", f"flood {number}")
    assert intake.rows("SELECT count(*) FROM inbox WHERE outcome IS NULL") == [2]


async def test_too_long_too_many_and_unreadable(sqlite: Database, clock: HandClock):
    intake = IntakeHarness(sqlite, clock, message_bytes=20, queue_per_chat=2)
    await intake.comes("é" * 11)
    clock.tick(60_000)
    await intake.comes("")
    clock.tick(60_000)
    for number in range(9):
        await intake.comes(f"message {number}")
    assert [answer.split()[0] for answer in intake.sent()] == ["This", "I", "There"]
    assert intake.rows("SELECT count(*) FROM inbox WHERE outcome IS NULL") == [2]
    clock.tick(60_000)
    await intake.comes("one more")
    assert len(intake.sent()) == 4


async def test_what_was_overheard_comes_along_once_even_when_the_mention_is_doubled(intake: IntakeHarness):
    await intake.comes("lunch at one", GROUP, user="8", mentioned=False)
    await intake.comes("lunch at one", GROUP, user="8", mentioned=False, message_id="1")
    await intake.comes("when is lunch", GROUP, dedup_key="asked")
    (body,) = intake.rows("SELECT body FROM inbox")
    assert body.count("[Bob] lunch at one") == 1
    await intake.comes("and dessert at two", GROUP, mentioned=False)
    await intake.comes("when is lunch", GROUP, dedup_key="asked")
    await intake.comes("and dessert", GROUP)
    assert "dessert at two" in intake.rows("SELECT body FROM inbox ORDER BY id")[-1]


async def test_a_mention_that_is_added_by_an_edit_counts_once(intake: IntakeHarness):
    heard = await intake.comes("what is for lunch", GROUP, user="8", mentioned=False)
    later = replace(heard, text="what is for lunch today", kind=EDIT, dedup_key="edit")
    await intake.deliver(later)
    await intake.deliver(replace(later, mentioned=True, dedup_key="added"))
    await intake.deliver(replace(later, mentioned=True, dedup_key="added"))
    (body,) = intake.rows("SELECT body FROM inbox")
    assert body.count("[Bob] what is for lunch today") == 1
    assert intake.rows("SELECT count(*) FROM overheard") == [0]


async def test_an_edit_of_what_was_overheard_changes_what_comes_along(intake: IntakeHarness):
    heard = await intake.comes("lunch at one", GROUP, user="8", mentioned=False)
    await edit(intake, heard, "lunch at two")
    await intake.comes("when is lunch", GROUP)
    (body,) = intake.rows("SELECT body FROM inbox")
    assert "lunch at two" in body
    assert "lunch at one" not in body


async def test_overheard_words_are_few_and_leave_no_other_trace(sqlite_intake: IntakeHarness):
    for number in range(40):
        await sqlite_intake.comes("w" * 2_000, GROUP, mentioned=False, message_id=str(number))
    assert sqlite_intake.rows("SELECT count(*) FROM overheard") == [30]
    assert sqlite_intake.rows("SELECT max(length(text)) FROM overheard") == [
        len("w" * 1_000 + "… [1,000 more characters]")
    ]
    assert sqlite_intake.rows("SELECT count(*) FROM inbox") == [0]


async def test_start_greets_in_a_dm_and_once_in_a_group(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("/start")
    await sqlite_intake.comes("/start", GROUP)
    await sqlite_intake.comes("/start", GROUP)
    assert sqlite_intake.sent() == [say("people.paired"), say("people.group_hello")]


async def test_a_group_that_became_a_supergroup_is_the_same_group(intake: IntakeHarness):
    await intake.comes("hello", GROUP, user="8")
    for name in ("one", "the same from the other side"):
        moved = Inbound(
            dedup_key=name,
            address=Address(platform=Platform.TELEGRAM, kind=GROUP, chat_id="-100"),
            sender=Sender(id="1"),
            message_id="9",
            text="-100200",
            kind=MOVED,
        )
        await intake.deliver(moved)
    number = intake.waits(GROUP_KEY, AskKind.QUESTION)
    await intake.comes("blue", GROUP, user="8", chat="-100200")
    assert intake.answer(number) == "[Bob] blue"
    await intake.comes("/new", GROUP, chat="-100200")
    assert intake.rows("SELECT chat FROM outbox ORDER BY id DESC LIMIT 1") == ["-100200"]
    assert set(intake.keys()) == {GROUP_KEY}


async def test_a_model_that_was_changed_is_the_one_that_is_named(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("/model")
    sqlite_intake.app.chosen = replace(sqlite_intake.app.chosen, name="bigger")
    await sqlite_intake.comes("/model")
    assert ["big" in sqlite_intake.sent()[0], "bigger" in sqlite_intake.sent()[1]] == [True, True]


async def test_who_is_paired_or_revoked_counts_from_the_next_message_on(intake: IntakeHarness):
    await intake.comes("hello", user="66")
    code = intake.sent()[0].split("Your code is ")[1][:9]
    await intake.database.write(people.approve, code, intake.clock())
    await intake.comes("hello", user="66")
    assert intake.keys() == ["agent:main:telegram:dm:66"]
    await intake.database.write(people.revoke, "66")
    await intake.comes("/new", user="66")
    assert intake.status("agent:main:telegram:dm:66") is RunStatus.RUNNING
