"""What a model claims to have found is held against the messages that it was found in."""

from typing import Any

import pytest

from gateway.agent.memory.checks import checked
from gateway.agent.memory.fold import FoldedNote
from gateway.observe.redaction import hide
from sessions.memory import NewObservation
from sessions.records import Message, MessageState, Observation, Role

DAY = 86_400_000
NINTH_OF_MARCH = 1_773_014_400_000 + 9 * 3_600_000  # 2026-03-09


def message(
    number: int, text: str, *, role: Role = Role.USER, sender: str | None = None, at: int = NINTH_OF_MARCH
) -> Message:
    return Message(
        id=number,
        session_id="s",
        run_id=None,
        role=role,
        content=text,
        tool_calls=None,
        tool_call_id=None,
        tool_name=None,
        token_count=None,
        created_at=at,
        sender=sender,
        attachments=None,
        state=MessageState.DONE,
        idem_key=None,
    )


def candidate(number: int) -> Observation:
    return Observation(
        id=number,
        ns="n",
        kind="fact",
        text="x",
        cause=None,
        happened=None,
        said_at=1,
        src=(1,),
        session_id="s",
        supersedes=None,
        closed_by=None,
        closed_at=None,
        weight=1,
        asked_as=(),
    )


def check(text: str, *said: str | Message, **more: Any) -> NewObservation | None:
    messages = [each if isinstance(each, Message) else message(number, each) for number, each in enumerate(said, 1)]
    candidates = [candidate(number) for number in more.pop("candidates", ())]
    note = FoldedNote.model_validate({"kind": "fact", "text": text, "src": [1], **more})
    found = checked([note], messages, candidates)
    return found[0] if found else None


def text_of(text: str, *said: str | Message, **more: Any) -> str | None:
    found = check(text, *said, **more)
    return None if found is None else found.text


def test_what_was_said_is_kept_in_the_words_of_the_model() -> None:
    assert (
        text_of("Production runs PostgreSQL 15", "we are on PostgreSQL 15 in production, fyi")
        == "Production runs PostgreSQL 15"
    )
    assert text_of("Prefers tea to coffee", "I prefer tea to coffee. Always have.") == "Prefers tea to coffee"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Production runs PostgreSQL 16", "We run PostgreSQL 15 in production"),
        ("Pays 150 euros a month", "The rent is 15 euros a day"),
        ("Uses version 3.1", "I am on version 3.11 now"),
        ("The site is https://example.org/b", "Look at https://example.org/a for the site"),
        ("The meeting is on 2026-04-01", "The meeting is on 2026-05-01"),
        ("Ann and Boris share an office", "Ann shares her office with somebody"),
        ("Kafka replaced the old cache", "Redis replaced the old cache"),
        ("Kept bees for 9 years", "We kept bees for years"),  # the day of the message is 2026-03-09
    ],
)
def test_a_number_or_name_that_nobody_said_makes_it_the_sentence_itself(text: str, said: str) -> None:
    assert text_of(text, f"Good morning. {said}. Thanks!") == f"{said}."


def test_the_date_and_the_name_of_the_speaker_count_as_said() -> None:
    spoken = message(1, "I moved to Oslo today", sender="Ann")
    assert text_of("Ann moved to Oslo on 2026-03-09", spoken) == "Ann moved to Oslo on 2026-03-09"


def test_sources_are_messages_of_the_fold_or_the_one_that_shares_most_words() -> None:
    found = check("The launch is in Lisbon", "hello", "the launch will be in Lisbon", src=[99])
    assert found is not None
    assert found.src == (2,)
    assert check("The launch is in Lisbon", "hello", "how are you", src=[99]) is None
    found = check("The launch is in Lisbon", "the launch", "will be in Lisbon", src=["1", 2, 2, 7])
    assert found is not None
    assert found.src == (1, 2)


def test_a_wrong_source_is_found_anew_and_never_makes_another_note_of_it() -> None:
    said = ("Our cat is called Mogli and weighs 6 kilos", "Ann moved to Oslo in 2019", "The boiler needs 1.5 bar")
    for wrong in (2, 3):
        found = check("The cat Mogli weighs 6 kilos", *said, src=[wrong])
        assert found is not None
        assert (found.text, found.src) == ("The cat Mogli weighs 6 kilos", (1,))
    assert check("Bagheera has 9 lives", *said, src=[2]) is None, "it says nothing of that, so it is no note of it"


def test_what_only_the_agent_has_said_is_no_note_unless_a_person_said_yes() -> None:
    offered = message(1, "You could become a vegetarian", role=Role.ASSISTANT)
    assert text_of("Wants to become a vegetarian", offered, message(2, "What is for lunch?")) is None
    found = check("Wants to become a vegetarian", offered, message(2, "Yes, I will do that"))
    assert found is not None
    assert found.src == (1, 2)
    repeated = message(2, "So you do not eat meat.", role=Role.ASSISTANT)
    found = check("Does not eat meat", message(1, "I gave up meat, I do not eat it any more"), repeated, src=[2])
    assert found is not None
    assert found.src == (1,)


def test_a_cause_has_something_to_do_with_its_source() -> None:
    said = "Redis is gone, because prices were stale"
    for cause, kept in (("prices were stale", "prices were stale"), ("it was fun", None)):
        found = check("Redis is gone", said, cause=cause)
        assert found is not None
        assert found.cause == kept


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Should we use Redis?", "Should we use Redis?"),
        ("要用Redis吗？", "Redis. 要用Redis吗？ 是的。"),
        ("The team uses Redis", "Should we use Redis?"),
        ("The team uses Redis", "Morning all. Should the team use Redis?"),
    ],
)
def test_a_question_is_not_a_fact(text: str, said: str) -> None:
    assert check(text, said) is None


def test_a_question_that_was_answered_is_one() -> None:
    asked = message(1, "Shall I remove Redis?", role=Role.ASSISTANT)
    assert text_of("Redis is removed", asked, message(2, "yes, do it"), src=[1, 2]) == "Redis is removed"


def test_only_a_candidate_can_be_replaced() -> None:
    assert check("Lives in Oslo", "I live in Oslo", replaces=5, candidates=[5]) == check(
        "Lives in Oslo", "I live in Oslo", replaces="o5", candidates=[5]
    )
    found = check("Lives in Oslo", "I live in Oslo", replaces=6, candidates=[5])
    assert found is not None
    assert found.replaces is None


def test_a_reason_that_nobody_gave_is_left_out() -> None:
    found = check("Redis is gone", "Redis is gone, its 3 bugs were too many", cause="3 bugs")
    assert found is not None
    assert found.cause == "3 bugs"
    found = check("Redis is gone", "Redis is gone, its 3 bugs were too many", cause="it cost 400 euros")
    assert found is not None
    assert found.cause is None


@pytest.mark.parametrize(
    ("happened", "said", "kept"),
    [
        ("2026-03-06", "last Friday we moved", "2026-03-06"),
        ("2026-03", "this month we moved", "2026-03"),
        ("2019-07-14", "we moved on 2019-07-14", "2019-07-14"),
        ("2019-07-14", "we moved in July 2019", "2019-07-14"),
        ("2019-07-14", "we moved", None),
        ("2026-02-31", "we moved", None),
        ("yesterday", "we moved yesterday", None),
    ],
)
def test_a_date_is_near_its_message_or_named_in_it(happened: str, said: str, kept: str | None) -> None:
    found = check("We moved", said, happened=happened)
    assert found is not None
    assert found.happened == kept


def test_questions_are_checked_for_their_length_only() -> None:
    asked = ["why no cache?", "", "x" * 101, "what became of 9 Redis boxes?", "why no cache?", "third", "fourth"]
    found = check("Redis is gone", "Redis is gone", asked_as=asked)
    assert found is not None
    assert found.asked_as == ("why no cache?", "what became of 9 Redis boxes?", "third")


def test_secrets_are_not_kept() -> None:
    hide(["correct-horse-battery"])
    said = "My key is sk-abcdefghijklmnop1234, the password is hunter2 and the word is correct-horse-battery"
    found = check(said, said, asked_as=["what is sk-abcdefghijklmnop1234 for?"])
    assert found is not None
    assert not any(secret in str(found) for secret in ("abcdefghijkl", "hunter2", "battery"))


def test_what_an_assistant_said_counts_less_than_a_person() -> None:
    told = message(1, "Deploys are on Fridays in 2019", role=Role.ASSISTANT)
    answered = message(2, "No, deploys are on Mondays")
    assert text_of("Deploys are on Mondays since 2020", told, answered, src=[1, 2]) == "No, deploys are on Mondays"
