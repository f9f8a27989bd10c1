"""Questions of runs that wait for a person: decides whether a message answers one, and records the tap of a button.

Also tells people whose message has to wait for the answer, edits cards that can no longer be answered, and reminds of those that wait. A
question is an approval of a tool call or one that the agent asks. How an answer is stored: `sessions/runs/waiting.py`.
"""

from dataclasses import dataclass

from sqlalchemy import Connection

from gateway.commands import ChatContext
from gateway.context import App, every
from gateway.observe.logging import get_logger
from gateway.runs.replies import closed_card, question_text
from gateway.texts import format_short_time, say
from sessions import asks, inbox, outbox, people, runs
from sessions.keys import ChatKind, SessionKey
from sessions.messages import Content, Inbound
from sessions.records import Ask, AskKind, OutRow, Run, RunStatus

log = get_logger(__name__)

_NUMBER = 18
"""Digits that fit into a row's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingQuestion:
    """A question that waits for an answer. `answered`: whether this message answers it."""

    run: Run
    ask: Ask
    answered: bool


def waiting_for(conn: Connection, inbound: Inbound, chat: ChatContext, *, allowed: bool) -> WaitingQuestion | None:
    """Returns the question that this conversation waits with, or None. A message answers it if it comes from the chat and topic where the
    question was asked, in a group as a reply to the question or with a mention, and from somebody who may answer.
    """
    run = runs.active(conn, chat.session_key)
    ask = asks.open_of(conn, run.id) if run is not None and run.status is RunStatus.WAITING else None
    if run is None or ask is None:
        return None
    # Anybody present may answer a question; what a tool may do, only somebody with access decides.
    may = allowed or ask.kind is AskKind.QUESTION
    answered = may and runs.may_answer(conn, run, chat.route) and not _replies_to_another(conn, inbound, run, ask)
    return WaitingQuestion(run=run, ask=ask, answered=answered)


def _replies_to_another(conn: Connection, inbound: Inbound, run: Run, ask: Ask) -> bool:
    if not inbound.by_reply or inbound.quote is None:
        return False
    return inbound.quote.message_id not in runs.card_names(conn, run, ask)


def notify_held_up(conn: Connection, inbound: Inbound, chat: ChatContext, waiting: WaitingQuestion) -> None:
    """Tells the sender that the message is kept until the question is answered. Repeats the question where it was asked."""
    run, ask = waiting.run, waiting.ask
    if people.same_place(conn, run.route, chat.route) and _replies_to_another(conn, inbound, run, ask):
        body = Content(text=say("ask.waiting", question=question_text(ask)))
        runs.remind(conn, run, ask, body, chat.now, route=chat.route, why=inbound.dedup_key)
    elif chat.route is not None:
        body = Content(text=say("ask.held_up"))
        runs.tell_held_up(conn, chat.session_key, chat.route, inbound.dedup_key, body, chat.now)


def decide(conn: Connection, inbound: Inbound, chat: ChatContext, *, allowed: bool) -> str | None:
    """Records the decision of a tap, once. Returns the reply; empty when the edited card says enough, None when the tap is repeated or not for
    this question. `allowed`: this person may approve.
    """
    _, _, rest = inbound.text.partition(":")
    number, _, choice = rest.partition(":")
    ask = asks.get(conn, int(number)) if number.isdecimal() and len(number) <= _NUMBER else None
    if ask is None or not inbox.record_once(conn, inbound.dedup_key, chat.session_key, chat.now):
        return None
    if not _is_asked_here(conn, ask, inbound, chat):
        log.warning("auth.denied", user_id=inbound.sender.id, ask=ask.id, reason="a button of another chat")
        return None
    if ask.kind is AskKind.APPROVAL and not allowed:
        asks.refuse(conn, ask, chat.account.who, "not allowed to decide", chat.now)
        return say("people.not_allowed")
    approved = choice == "y" if ask.kind is AskKind.APPROVAL else None
    if approved is not None:
        answer = "yes" if approved else "no"
    else:
        answer = ask.options[int(choice)] if choice in map(str, range(len(ask.options))) else choice
    who = chat.account.who
    if runs.answer(conn, ask.run_id, answer, chat.user, chat.now, ask_id=ask.id, approved=approved, who=who):
        return ""
    # Somebody else has decided already, or the run has ended.
    asks.refuse(conn, ask, chat.account.who, "decided or over before", chat.now)
    if ask.answered_at is None or not ask.answered_by:
        return say("ask.nothing")
    return say("ask.already", who=ask.answered_by, when=chat.format_time(ask.answered_at))


def _is_asked_here(conn: Connection, ask: Ask, inbound: Inbound, chat: ChatContext) -> bool:
    """Checks that the question belongs to this chat, and to this person where everybody has a session: the data of a button can be forged."""
    run = runs.get(conn, ask.run_id)
    if run.route is None:
        return False
    # By their first ids: a group that became a supergroup since has got another one.
    asked, here = (people.first_address(conn, address) for address in (run.route.address, inbound.address))
    whose = SessionKey.parse(run.session_key).user_id
    is_theirs = whose is None or whose == chat.key.user_id
    return (asked.platform, asked.chat_id) == (here.platform, here.chat_id) and is_theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class CardEdit:
    """The edit of one message of a card: the platform's message `message_id` becomes the `part`th piece of `text`. An empty `message_id`:
    there is nothing to edit.
    """

    message_id: str = ""
    part: int = 1
    text: str = ""


def edit_of(conn: Connection, row: OutRow, ask_id: int, now: int, timezone: str) -> CardEdit:
    """Returns the edit of the card's last piece, which has the buttons; an empty one where the card has not arrived or the ask is gone."""
    ask, pieces = asks.get(conn, ask_id), outbox.previous_message_ids(conn, row)
    if ask is None or not pieces:
        return CardEdit()
    text = closed_card(ask, format_short_time(ask.answered_at or now, now, timezone))
    return CardEdit(message_id=pieces[-1], part=len(pieces), text=text)


AFTER_MS = 24 * 3_600_000
POLL_SECONDS = 60.0


class Reminders:
    def __init__(self, app: App) -> None:
        self.app = app

    @every(POLL_SECONDS, "reminders")
    async def send(self) -> None:
        """Repeats unanswered questions once."""
        app = self.app
        for run, ask in await app.database.read(runs.unanswered, app.clock() - AFTER_MS):
            # Not in groups: there the question stands among other people's messages, and would be repeated to all of them.
            if run.route is not None and run.route.address.kind is ChatKind.DM:
                now = app.clock()
                since = format_short_time(ask.created_at, now, app.timezone)
                text = say("ask.waiting_reminder", when=since, question=question_text(ask))
                await app.database.write(runs.remind, run, ask, Content(text=text), now)
