"""Questions in a chat: who decides, by which way, and what becomes of the card. On both databases where that can matter."""

import pytest
from sqlalchemy import Connection

from gateway.chats.access import AccessRules
from gateway.texts import say
from sessions import asks, runs
from sessions.keys import Address, DmScope, Platform
from sessions.messages import Quote
from sessions.records import AskKind, RunStatus
from tests.integration.gateway.intake_in_process import CARD, DM_KEY, GROUP, GROUP_KEY, MOVED, Door, tap


async def test_an_approval_is_not_given_by_words_of_somebody_who_is_only_present(door: Door):
    await door.comes("hello", GROUP)
    number = door.waits(GROUP_KEY)
    await door.comes("yes", GROUP, user="8")
    await tap(door, f"a:{number}:y", GROUP, user="8")
    assert door.status(GROUP_KEY) is RunStatus.WAITING
    assert door.answer(number) is None
    assert door.sent() == [say("ask.held_up"), say("people.not_allowed")]
    await door.comes("yes", GROUP, quote=Quote(message_id="55", text="May I do this?", from_us=True))
    assert door.answer(number) == "yes"


async def test_a_tap_decides_once_and_says_who(door: Door):
    await door.comes("hello", GROUP)
    number = door.waits(GROUP_KEY)
    await tap(door, f"a:{number}:y", kind=GROUP, user="8")
    assert door.answer(number) is None
    await tap(door, f"a:{number}:n", kind=GROUP, twice=True)
    assert door.answer(number) == "no"
    await tap(door, f"a:{number}:y", kind=GROUP)
    refused, late = door.sent()
    assert refused == say("people.not_allowed")
    assert door.closed() == [number]
    assert "Ann already decided this" in late
    assert door.answer(number) == "no"


async def test_a_forged_button_reaches_no_other_chat_and_stops_nothing(quick: Door):
    quick.rules = AccessRules(allowed_users=frozenset({"7", "8"}), first_allowed="7")
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


async def test_where_each_has_a_session_only_they_decide(quick: Door):
    quick.rules = AccessRules(allowed_users=frozenset({"7", "8"}), group_sessions_per_user=True)
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


async def test_in_a_group_a_word_that_is_for_nobody_answers_nothing(quick: Door):
    quick.rules = AccessRules(allowed_users=frozenset({"7"}), require_mention=False)
    await quick.comes("hello", GROUP)
    number = quick.waits(GROUP_KEY, AskKind.QUESTION)
    await quick.comes("blue is nice", GROUP, mentioned=False)
    assert quick.answer(number) is None
    await quick.comes("blue", GROUP)
    assert quick.answer(number) == "[Ann] blue"


@pytest.mark.parametrize("said", ["yes", "no, not that one", "/approve", "/deny", "/stop", "/new", "/retry", "/undo"])
async def test_however_it_is_decided_the_card_is_closed_once(quick: Door, said: str):
    await quick.comes("hello")
    number = quick.waits(DM_KEY)
    await quick.comes(said)
    assert quick.closed() == [number]
    await quick.comes("/stop")
    assert quick.closed() == [number]


async def test_an_answer_over_http_closes_the_card_too(door: Door):
    await door.comes("hello", GROUP)
    number = door.waits(GROUP_KEY, AskKind.QUESTION)

    def answer(conn: Connection) -> None:
        ask = asks.get(conn, int(number))
        assert ask is not None
        assert runs.answer(conn, ask.run_id, "violet", "laptop", door.clock())

    await door.database.write(answer)
    assert door.closed() == [number]


async def test_what_is_forwarded_approves_nothing(quick: Door):
    await quick.comes("hello")
    number = quick.waits(DM_KEY)
    await quick.comes("yes", forwarded_from="Bob")
    assert quick.answer(number) == "(forwarded from Bob)\nyes"


async def test_words_approve_only_what_can_have_been_read(door: Door):
    await door.comes("hello")
    number = door.waits(DM_KEY, delivered=False)
    await door.comes("ok")
    assert door.answer(number) is None
    door.arrives(said=CARD)
    await door.comes("ok")
    assert door.answer(number) == "ok"
    assert door.rows("SELECT count(*) FROM inbox WHERE outcome IS NULL") == [1]


async def test_in_a_group_an_answer_is_a_reply_to_the_question_or_a_mention(door: Door):
    await door.comes("hello", GROUP)
    number = door.waits(GROUP_KEY, AskKind.QUESTION)
    old = Quote(message_id="7", text="An old answer", from_us=True)
    asked = await door.comes("what did you mean by that?", GROUP, user="8", quote=old, by_reply=True)
    assert door.answer(number) is None
    (again,) = door.sent()
    assert again == say("ask.waiting", question="rm -rf *")
    door.arrives(said=again, name="99")
    once_more = Quote(message_id="99", text=again, from_us=True)
    await door.comes("the red one", GROUP, quote=once_more, by_reply=True)
    assert door.answer(number) == "[Ann] the red one"
    assert asked.text in door.rows("SELECT body FROM inbox WHERE outcome IS NULL")[0]


async def test_what_is_said_in_another_topic_answers_nothing_and_is_kept(door: Door):
    topic = Address(platform=Platform.TELEGRAM, kind=GROUP, chat_id="-100", thread_id="12")
    await door.comes("hello", GROUP)
    number = door.waits(GROUP_KEY, AskKind.QUESTION)
    await door.comes("what is two and two", GROUP, user="8", address=topic)
    assert door.answer(number) is None
    assert door.sent() == [say("ask.held_up")]
    assert "two and two" in door.rows("SELECT body FROM inbox WHERE outcome IS NULL")[0]


async def test_what_somebody_else_says_in_private_answers_nothing(door: Door):
    door.rules = AccessRules(allowed_users=frozenset({"7", "8"}), first_allowed="7", dm_scope=DmScope.SHARED)
    await door.comes("hello")
    number = door.waits(DM_KEY, AskKind.QUESTION)
    await door.comes("my number is 1234", user="8")
    assert door.answer(number) is None
    assert "rm -rf" not in "".join(door.sent())


async def test_an_answer_from_the_supergroup_that_the_group_became_is_one(door: Door):
    await door.comes("hello", GROUP)
    number = door.waits(GROUP_KEY, AskKind.QUESTION)
    await door.comes("-200", GROUP, kind_of=MOVED)
    await door.comes("the red one", GROUP, chat="-200")
    assert door.answer(number) == "[Ann] the red one"
