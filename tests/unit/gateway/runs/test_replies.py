"""What goes into a chat."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.runs.replies import approval_card, closed_card, not_done, question_card, reply_body
from gateway.texts import say
from sessions.asks import says_yes
from sessions.files import folder_name
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Content
from sessions.records import Ask, AskKind, Route


def in_a(kind: ChatKind) -> Route:
    return Route(address=Address(platform=Platform.TELEGRAM, kind=kind, chat_id="1"))


@pytest.mark.parametrize("kind", [ChatKind.GROUP, ChatKind.CHANNEL])
def test_silence_is_an_answer_in_groups(kind: ChatKind):
    assert reply_body(" NO_REPLY\n", in_a(kind)) is None
    assert reply_body("  ", in_a(kind)) is None
    assert reply_body("NO_REPLY is a word", in_a(kind)) == Content(text="NO_REPLY is a word")


@pytest.mark.parametrize(
    ("asked", "answer", "key"),
    [
        ("Remind me tomorrow at nine to call my mother.", "I will remind you.", "run.nothing_scheduled"),
        ("please set a reminder for the bins", "Done!", "run.nothing_scheduled"),
        ("Forget what I said about the dentist.", "I have forgotten it.", "run.nothing_forgotten"),
        ("Could you please delete my notes", "All gone.", "run.nothing_forgotten"),
        ("Search in our earlier conversations for the word lentils.", "I found it.", "run.nothing_searched"),
        ("could you look through my old messages for it", "Here it is.", "run.nothing_searched"),
        ("Search our chats.", "I cannot search here.", ""),
        ("Search the web for the history of tea.", "It is old.", ""),
        ("Look at the history of Rome", "It is long.", ""),
        ("Remind me tomorrow at nine.", "I cannot set reminders here.", ""),
        ("Remind me tomorrow.", "At what time?", ""),
        ("Remind me what we said about tea.", "You like it.", ""),
        ("Did you remind me to call her?", "Yes, at nine.", ""),
        ("Forget it, tell me a joke.", "Here is one.", ""),
        ("Never forget my birthday", "I will not.", ""),
        ("What is 17 times 23?", "391", ""),
    ],
)
def test_what_was_asked_for_and_not_done_is_said(asked: str, answer: str, key: str):
    assert not_done(asked, answer) == (f"\n\n{say(key)}" if key else "")


def test_in_a_dm_something_is_always_said():
    assert reply_body("NO_REPLY", in_a(ChatKind.DM)) == Content(text="NO_REPLY")
    assert reply_body("", in_a(ChatKind.DM)) == Content(text=say("run.failed"))


@given(exact=st.text(max_size=5_000))
def test_a_card_always_fits_and_says_what_is_missing(exact: str):
    card = approval_card(exact)
    assert len(card.text) <= 1_200
    assert len(card.text.splitlines()) <= 24
    assert card.text.count("```") == 2
    assert all(len(button.data.replace("{ask}", "9" * 19)) <= 64 for button in card.buttons)


def test_a_card_that_hides_something_says_so():
    assert "… 28 more lines" in approval_card("\n".join(map(str, range(40)))).text
    assert "… 1200 more characters" in approval_card("x" * 2_000).text
    assert "more" not in approval_card("rm x").text


def test_characters_that_show_another_call_are_spelled_out():
    card = approval_card("process: echo \u202efdp.exe\u200b\x1b[2J\n\tnext")
    assert "```\nprocess: echo \\u{202e}fdp.exe\\u{200b}\\u{1b}[2J\n\tnext\n```" in card.text


def test_a_question_with_options_has_a_button_for_each():
    card = question_card("Which?", ["a" * 90, "b"])
    assert [(len(button.label), button.data) for button in card.buttons] == [
        (40, "a:{ask}:0"),
        (1, "a:{ask}:1"),
    ]
    assert [button.label for button in card.buttons] == ["a" * 39 + "…", "b"]
    assert card.text.startswith(f"Which?\n\n- {'a' * 90}\n- b\n\n")
    assert question_card("Which?", []) == Content(text="Which?")


def closed(kind: AskKind, question: str, answer: str | None, by: str | None = "Ann") -> str:
    ask = Ask(
        id=1,
        run_id="r",
        tool_call_id="c",
        kind=kind,
        question=question,
        options=("a", "b"),
        args_hash=None,
        created_at=0,
        answered_at=1,
        answer=answer,
        answered_by=by,
        approved=says_yes(answer or "") if kind is AskKind.APPROVAL else None,
    )
    return closed_card(ask, "12:30")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("yes", "Approved by Ann, 12:30."),
        ("OK", "Approved by Ann, 12:30."),
        ("no", "Denied by Ann, 12:30."),
        ("only the first two", "Denied by Ann, 12:30."),
        (None, say("ask.closed")),
    ],
)
def test_a_closed_approval_says_what_was_asked_and_what_became_of_it(answer: str | None, outcome: str):
    text = closed(AskKind.APPROVAL, "process rm x", answer)
    assert text.endswith(f"\n\n{outcome}")
    assert "```\nprocess rm x\n```" in text
    assert say("ask.approval_note") not in text


def test_a_closed_question_shows_the_answer_and_whose_it_is():
    assert closed(AskKind.QUESTION, "Which?", "red") == "Which?\n\nAnswered by Ann: red"
    assert closed(AskKind.QUESTION, "Which?", "[Ann] red") == "Which?\n\nAnswered by Ann: red"
    assert closed(AskKind.QUESTION, "Which?", "red", "") == "Which?\n\nAnswered by somebody: red"
    assert closed(AskKind.QUESTION, "Which?", "x" * 900).endswith("xxx…")
    assert len(closed(AskKind.QUESTION, "Which?", "x" * 900)) < 250


@pytest.mark.parametrize("answer", ["yes", " Yes. ", "OK", "go ahead", "please do"])
def test_words_that_approve(answer: str):
    assert says_yes(answer)


@pytest.mark.parametrize("answer", ["", "no", "yes, but later", "ok?", "yesterday", "not ok"])
def test_words_that_do_not(answer: str):
    assert not says_yes(answer)


@given(ns=st.text(min_size=1, max_size=400))
def test_a_namespace_is_one_folder(ns: str):
    name = folder_name(ns)
    assert "/" not in name
    assert name.strip(".")
    assert len(name.encode()) <= 255
