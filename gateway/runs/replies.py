"""What a run sends to its chat: its answer, its questions, their closed cards, the notice of an interruption, the line about a reset."""

import re
from collections.abc import Sequence

from gateway.agent.transcript import NOTHING_FORGOTTEN, NOTHING_SCHEDULED, NOTHING_SEARCHED
from gateway.runs.live import NO_REPLY
from gateway.texts import format_duration, say
from gateway.texts.quoting import visible
from sessions.keys import ChatKind
from sessions.messages import Button, Content
from sessions.policy import ResetPolicy
from sessions.records import Ask, AskKind, EndReason, Route, Session

_CARD_LINES, _CARD_CHARACTERS = 12, 800
_LABEL = 40
_ANSWER = 200
UNNOTICED_MS = 60_000
_SHOWN = 200


def reply_body(text: str, route: Route, *, asked: bool = True) -> Content | None:
    """Returns the outbox body of an answer; None: nothing is sent. In groups, and where nobody has asked, silence is an answer; in a DM
    an empty answer is reported as a fault.
    """
    in_dm = route.address.kind is ChatKind.DM and asked
    if text.strip() == NO_REPLY and not in_dm:
        return None
    if not text.strip():
        return Content(text=say("run.failed")) if in_dm else None
    return Content(text=text)


_ASKED = {
    NOTHING_SCHEDULED: re.compile(
        r"(?<!did you )\bremind me (?:to|at|on|tomorrow|tonight|later|next|every|in (?:\d|an?|half|one|two|three|five|ten))\b"
        r"|\bset (?:me )?an? (?:reminder|alarm|timer)\b|\bwake me (?:up )?(?:at|in|tomorrow)\b",
        re.IGNORECASE,
    ),
    NOTHING_FORGOTTEN: re.compile(
        r"\A\W*(?:please |(?:can|could|will|would) you (?:please )?)?"
        r"(?:forget (?:what (?:i|we)|everything|all|my|that (?:i|my|we)|(?:the|this) note)|(?:delete|remove|erase) (?:my|the|this|that) notes?)\b",
        re.IGNORECASE,
    ),
    NOTHING_SEARCHED: re.compile(
        r"\A\W*(?:please |(?:can|could|will|would) you (?:please )?)?(?:search|look (?:up|in|into|through))\b(?:\s\w+){0,3}?"
        r"\s(?:our|my|earlier|past|older|previous)\s(?:\w+\s)?(?:conversations?|messages|chats?|history)\b",
        re.IGNORECASE,
    ),
}
"""What people ask for that only a tool does, as they say it in English; and what they are told when none was called."""
_ADMITS = re.compile(
    r"\b(?:can(?:no|['’])t|unable|not able|(?:do|did|could|have)(?:n['’]t| not)|nothing|no note)\b", re.IGNORECASE
)


def not_done(asked: str, answer: str) -> str:
    """Returns the line below an answer that came without a tool call: that no reminder was set, no note removed, or nothing searched, when `asked`
    wants that. Small models claim to have done it. Empty when the answer admits it, or asks back."""
    if not answer.strip() or answer.rstrip().endswith("?") or _ADMITS.search(answer):
        return ""
    return "".join(f"\n\n{say(line)}" for line, asks in _ASKED.items() if asks.search(asked))


def interruption_notice(away_ms: int, unsure: Sequence[str]) -> str | None:
    """Returns the line that tells a chat of an interruption; None where nobody can have noticed it. `unsure`: the calls of which nobody
    knows whether they were executed.
    """
    if unsure:
        shown = ", ".join(unsure)
        return say("run.continued_unsure", what=shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…")
    return say("run.continued") if away_ms > UNNOTICED_MS else None


def question_card(question: str, options: Sequence[str]) -> Content:
    """Returns the card of a question. Options that do not fit on a button stand in the text."""
    buttons = tuple(
        Button(label=option if len(option) <= _LABEL else f"{option[: _LABEL - 1]}…", data=f"a:{{ask}}:{number}")
        for number, option in enumerate(options)
    )
    listed = "\n".join(f"- {option}" for option in options) if any(len(option) > _LABEL for option in options) else ""
    invitation = say("ask.or_reply") if options else ""
    return Content(text="\n\n".join(filter(None, (question, listed, invitation))), buttons=buttons)


def approval_card(exact: str) -> Content:
    """Returns the card of an approval: the question, short enough to fit always, and two buttons."""
    buttons = (Button(label=say("ask.approve"), data="a:{ask}:y"), Button(label=say("ask.deny"), data="a:{ask}:n"))
    return Content(text=f"{_approval(exact, whole=False)}\n\n{say('ask.approval_note')}", buttons=buttons)


def _approval(exact: str, *, whole: bool) -> str:
    """Returns the question about the exact call, which stands in a code block, as Markdown would take marks of the call away."""
    exact = visible(exact)  # else another call might be shown than the one that is made
    shown = exact if whole else "\n".join(exact[:_CARD_CHARACTERS].splitlines()[:_CARD_LINES])
    # A fence inside of the call would end the block, and what follows could pass for our own words.
    block = f"```\n{shown.replace('```', '` ` `')}\n```{_left_out(exact, shown)}"
    return say("ask.approval", what=block)


def closed_card(ask: Ask, moment: str) -> str:
    """Returns a card's text without the invitation to decide, with what became of it."""
    return f"{question_text(ask)}\n\n{_outcome(ask, moment)}"


def question_text(ask: Ask, *, whole: bool = False) -> str:
    """Returns the question without the invitation to decide: as its card has it, or with the `whole` call."""
    return ask.question if ask.kind is AskKind.QUESTION else _approval(ask.question, whole=whole)


def numbered_question(ask: Ask) -> str:
    """Returns the whole question, with its options numbered, for callers without buttons."""
    return "\n".join([question_text(ask, whole=True), *(f"{number}. {one}" for number, one in ask.numbered.items())])


def _outcome(ask: Ask, moment: str) -> str:
    if ask.answer is None:
        return say("ask.closed")
    who = ask.answered_by or say("ask.somebody")
    if ask.kind is AskKind.QUESTION:
        said = ask.answer.removeprefix(f"[{who}] ")  # in groups, words begin with whose they are
        answer = said if len(said) <= _ANSWER else f"{said[:_ANSWER]}…"
        return say("ask.answered", who=who, answer=answer)
    return say("ask.approved_by" if ask.approved else "ask.denied_by", who=who, when=moment)


def _left_out(exact: str, shown: str) -> str:
    lines = len(exact.splitlines()) - len(shown.splitlines())
    characters = len(exact.rstrip()) - len(shown)
    if lines <= 0 and characters <= 0:
        return ""
    return f"\n… {f'{lines} more lines' if lines > 0 else f'{characters} more characters'}: /status shows all"


def reset_line(former: Session, opened_at: int, *, notes: int, policy: ResetPolicy) -> str:
    """Returns the line that says why the conversation is a new one, how many notes the agent made of the former one, and how to go back."""
    if former.end_reason is EndReason.DAILY:
        why = say("session.reset_daily", hour=f"{policy.at_hour:02}:00")
    else:
        silent = format_duration((opened_at - (former.last_user_at or former.started_at)) / 1000)
        why = say("session.reset_idle", idle=silent)
    kept = (say("session.kept_one") if notes == 1 else say("session.kept_other", count=notes)) if notes else ""
    return " ".join(filter(None, (why, kept, say("session.reset_back"))))
