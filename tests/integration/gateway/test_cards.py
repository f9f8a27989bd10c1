"""Questions in a chat: who decides, by which way, and what becomes of the card. On both databases where that can matter."""

import pytest
from sqlalchemy import Connection

from gateway.chats.access import AccessRules
from gateway.texts import say
from sessions import asks, runs
from sessions.keys import Address, DmScope, Platform
from sessions.messages import Quote
from sessions.records import AskKind, RunStatus
from tests.integration.gateway.intake_in_process import CARD, DM_KEY, GROUP, GROUP_KEY, MOVED, IntakeHarness, tap


async def test_an_approval_is_not_given_by_words_of_somebody_who_is_only_present(intake: IntakeHarness):
    await intake.comes("hello", GROUP)
    number = intake.waits(GROUP_KEY)
    await intake.comes("yes", GROUP, user="8")
    await tap(intake, f"a:{number}:y", GROUP, user="8")
    await intake.comes("/approve", GROUP, user="8")
    assert intake.status(GROUP_KEY) is RunStatus.WAITING
    assert intake.answer(number) is None
    assert intake.sent() == [say("ask.held_up"), *[say("people.not_allowed")] * 2]
    assert intake.rows("SELECT action FROM audit WHERE action LIKE 'approval%'") == ["approval.refused"] * 2
    await intake.comes("yes", GROUP, quote=Quote(message_id="55", text="May I do this?", from_us=True))
    assert intake.answer(number) == "yes"


async def test_a_tap_decides_once_and_says_who(intake: IntakeHarness):
    await intake.comes("hello", GROUP)
    number = intake.waits(GROUP_KEY)
    await tap(intake, f"a:{number}:y", kind=GROUP, user="8")
    assert intake.answer(number) is None
    await tap(intake, f"a:{number}:n", kind=GROUP, twice=True)
    assert intake.answer(number) == "no"
    await tap(intake, f"a:{number}:y", kind=GROUP)
    refused, late = intake.sent()
    assert refused == say("people.not_allowed")
    assert intake.closed() == [number]
    assert "Ann already decided this" in late
    assert intake.answer(number) == "no"


async def test_a_forged_button_reaches_no_other_chat_and_stops_nothing(sqlite_intake: IntakeHarness):
    sqlite_intake.rules = AccessRules(allowed_users=frozenset({"7", "8"}), first_allowed="7")
    await sqlite_intake.comes("hello")
    number = sqlite_intake.waits(DM_KEY)
    for data in (f"a:{number}:y", f"a:{number}:0", "a:999:y", f"a:{'9' * 40}:y", "a::y", "a", "", "b:1:y", "a:-1:y"):
        await tap(sqlite_intake, data, user="8")
    assert sqlite_intake.answer(number) is None
    assert sqlite_intake.sent() == []


async def test_a_word_that_is_not_on_the_card_does_not_approve(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("hello")
    number = sqlite_intake.waits(DM_KEY)
    await tap(sqlite_intake, f"a:{number}:0")
    assert sqlite_intake.answer(number) == "no"


async def test_where_each_has_a_session_only_they_decide(sqlite_intake: IntakeHarness):
    sqlite_intake.rules = AccessRules(allowed_users=frozenset({"7", "8"}), group_sessions_per_user=True)
    await sqlite_intake.comes("hello", GROUP)
    number = sqlite_intake.waits(f"{GROUP_KEY}:user:7")
    await tap(sqlite_intake, f"a:{number}:y", kind=GROUP, user="8")
    assert sqlite_intake.answer(number) is None
    await tap(sqlite_intake, f"a:{number}:y", kind=GROUP)
    assert sqlite_intake.answer(number) == "yes"


async def test_a_tap_after_the_end_gets_a_sentence(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("hello")
    number = sqlite_intake.waits(DM_KEY)
    await sqlite_intake.comes("/stop")
    await tap(sqlite_intake, f"a:{number}:y")
    assert sqlite_intake.sent()[1:] == [say("ask.nothing")]


async def test_a_question_is_answered_by_an_option(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("hello")
    number = sqlite_intake.waits(DM_KEY, AskKind.QUESTION)
    await tap(sqlite_intake, f"a:{number}:1")
    assert sqlite_intake.answer(number) == "blue"


async def test_in_a_group_a_word_that_is_for_nobody_answers_nothing(sqlite_intake: IntakeHarness):
    sqlite_intake.rules = AccessRules(allowed_users=frozenset({"7"}), require_mention=False)
    await sqlite_intake.comes("hello", GROUP)
    number = sqlite_intake.waits(GROUP_KEY, AskKind.QUESTION)
    await sqlite_intake.comes("blue is nice", GROUP, mentioned=False)
    assert sqlite_intake.answer(number) is None
    await sqlite_intake.comes("blue", GROUP)
    assert sqlite_intake.answer(number) == "[Ann] blue"


@pytest.mark.parametrize("said", ["yes", "no, not that one", "/approve", "/deny", "/stop", "/new", "/retry", "/undo"])
async def test_however_it_is_decided_the_card_is_closed_once(sqlite_intake: IntakeHarness, said: str):
    await sqlite_intake.comes("hello")
    number = sqlite_intake.waits(DM_KEY)
    await sqlite_intake.comes(said)
    assert sqlite_intake.closed() == [number]
    await sqlite_intake.comes("/stop")
    assert sqlite_intake.closed() == [number]


async def test_an_answer_over_http_closes_the_card_too(intake: IntakeHarness):
    await intake.comes("hello", GROUP)
    number = intake.waits(GROUP_KEY, AskKind.QUESTION)

    def answer(conn: Connection) -> None:
        ask = asks.get(conn, int(number))
        assert ask is not None
        assert runs.answer(conn, ask.run_id, "violet", "laptop", intake.clock())

    await intake.database.write(answer)
    assert intake.closed() == [number]


async def test_what_is_forwarded_approves_nothing(sqlite_intake: IntakeHarness):
    await sqlite_intake.comes("hello")
    number = sqlite_intake.waits(DM_KEY)
    await sqlite_intake.comes("yes", forwarded_from="Bob")
    assert sqlite_intake.answer(number) == "(forwarded from Bob)\nyes"


async def test_words_approve_only_what_can_have_been_read(intake: IntakeHarness):
    await intake.comes("hello")
    number = intake.waits(DM_KEY, delivered=False)
    await intake.comes("ok")
    assert intake.answer(number) is None
    intake.arrives(said=CARD)
    await intake.comes("ok")
    assert intake.answer(number) == "ok"
    assert intake.rows("SELECT count(*) FROM inbox WHERE outcome IS NULL") == [1]


async def test_in_a_group_an_answer_is_a_reply_to_the_question_or_a_mention(intake: IntakeHarness):
    await intake.comes("hello", GROUP)
    number = intake.waits(GROUP_KEY, AskKind.QUESTION)
    old = Quote(message_id="7", text="An old answer", from_us=True)
    asked = await intake.comes("what did you mean by that?", GROUP, user="8", quote=old, by_reply=True)
    assert intake.answer(number) is None
    (again,) = intake.sent()
    assert again == say("ask.waiting", question="rm -rf *")
    intake.arrives(said=again, name="99")
    once_more = Quote(message_id="99", text=again, from_us=True)
    await intake.comes("the red one", GROUP, quote=once_more, by_reply=True)
    assert intake.answer(number) == "[Ann] the red one"
    assert asked.text in intake.rows("SELECT body FROM inbox WHERE outcome IS NULL")[0]


async def test_what_is_said_in_another_topic_answers_nothing_and_is_kept(intake: IntakeHarness):
    topic = Address(platform=Platform.TELEGRAM, kind=GROUP, chat_id="-100", thread_id="12")
    await intake.comes("hello", GROUP)
    number = intake.waits(GROUP_KEY, AskKind.QUESTION)
    await intake.comes("what is two and two", GROUP, user="8", address=topic)
    assert intake.answer(number) is None
    assert intake.sent() == [say("ask.held_up")]
    assert "two and two" in intake.rows("SELECT body FROM inbox WHERE outcome IS NULL")[0]


async def test_what_somebody_else_says_in_private_answers_nothing(intake: IntakeHarness):
    intake.rules = AccessRules(allowed_users=frozenset({"7", "8"}), first_allowed="7", dm_scope=DmScope.SHARED)
    await intake.comes("hello")
    number = intake.waits(DM_KEY, AskKind.QUESTION)
    await intake.comes("my number is 1234", user="8")
    assert intake.answer(number) is None
    assert "rm -rf" not in "".join(intake.sent())


async def test_an_answer_from_the_supergroup_that_the_group_became_is_one(intake: IntakeHarness):
    await intake.comes("hello", GROUP)
    number = intake.waits(GROUP_KEY, AskKind.QUESTION)
    await intake.comes("-200", GROUP, kind_of=MOVED)
    await intake.comes("the red one", GROUP, chat="-200")
    assert intake.answer(number) == "[Ann] the red one"
