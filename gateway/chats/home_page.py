"""Builds the bot's own page for one person: what the bot is, who may use it, their conversations, the questions that wait for them."""

from sqlalchemy import Connection

from adapters.base import HomePage
from gateway.chats.access import ANYBODY, ChatAccess
from gateway.commands.base import label
from gateway.runs.replies import approval_card, question_card, question_text
from gateway.texts import say
from gateway.texts.times import format_short_time
from sessions import asks, runs, store
from sessions.keys import Address, ChatKind, Sender
from sessions.messages import Button
from sessions.records import Ask, AskKind, RunStatus

SHOWN = 5


def home_page(conn: Connection, platform: str, user: Sender, access: ChatAccess, timezone: str, now: int) -> HomePage:
    """Returns the page for this person. For somebody without access it says no more than that."""
    if not access.is_allowed(user):
        return HomePage(about=say("home.about"), access=say("home.no_access"), may_talk=False)
    address = Address(platform=platform, kind=ChatKind.DM, chat_id=user.id)
    key = str(access.key(address, user))
    earlier = [session for session in store.recent(conn, key=key, limit=SHOWN + 1) if session.ended_at is not None]
    sessions = tuple(
        (label(conn, session), format_short_time(session.started_at, now, timezone), f"/resume {session.id}")
        for session in earlier[:SHOWN]
    )
    return HomePage(about=say("home.about"), access=_who(access), sessions=sessions, questions=_waiting(conn, key))


def _who(access: ChatAccess) -> str:
    users = access.rules.allowed_users | access.paired.users
    if ANYBODY in users:
        return say("home.anybody")
    return say("home.allowed_one") if len(users) == 1 else say("home.allowed_other", count=len(users))


def _waiting(conn: Connection, key: str) -> tuple[tuple[str, tuple[Button, ...]], ...]:
    run = runs.active(conn, key)
    ask = asks.open_of(conn, run.id) if run is not None and run.status is RunStatus.WAITING else None
    return () if ask is None else ((question_text(ask), _buttons(ask)),)


def _buttons(ask: Ask) -> tuple[Button, ...]:
    card = approval_card(ask.question) if ask.kind is AskKind.APPROVAL else question_card(ask.question, ask.options)
    return card.for_ask(ask.id).buttons
