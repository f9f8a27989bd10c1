"""A tap on a button: whether it may decide, what it decides, and what is said when it decides nothing."""

from sqlalchemy import Connection

from gateway.commands import Chat
from gateway.observe.logging import get_logger
from gateway.texts import say
from gateway.texts.times import when
from sessions import aliases, asks, inbox, runs
from sessions.keys import SessionKey
from sessions.messages import Inbound
from sessions.records import Ask, AskKind

log = get_logger(__name__)

_NUMBER = 18
"""Digits that fit into a row's number."""


def decide(conn: Connection, inbound: Inbound, chat: Chat, *, allowed: bool) -> str:
    """Once. Returns what is replied; empty where the card says it all. `allowed`: the person may approve."""
    _, _, rest = inbound.text.partition(":")
    number, _, choice = rest.partition(":")
    ask = asks.get(conn, int(number)) if number.isdecimal() and len(number) <= _NUMBER else None
    if ask is None or not inbox.command(conn, inbound.dedup_key, chat.session_key, chat.now):
        return ""
    if not _is_asked_here(conn, ask, inbound, chat):
        log.warning("auth.denied", user_id=inbound.sender.id, ask=ask.id, reason="a button of another chat")
        return ""
    if ask.kind is AskKind.APPROVAL and not allowed:
        return say("people.not_allowed")
    if runs.answer(conn, ask.run_id, _choice(ask, choice), chat.user, chat.now, ask_id=ask.id):
        return ""
    return _too_late(ask, chat)


def _is_asked_here(conn: Connection, ask: Ask, inbound: Inbound, chat: Chat) -> bool:
    """What a button says can be forged, so the question has to be one of this chat, and of this person where each has a session."""
    run = runs.get(conn, ask.run_id)
    if run.route is None:
        return False
    asked, here = (aliases.first_address(conn, address) for address in (run.route.address, inbound.address))
    whose = SessionKey.parse(run.session_key).user_id
    is_theirs = whose is None or whose == SessionKey.parse(chat.session_key).user_id
    return (asked.platform, asked.chat_id) == (here.platform, here.chat_id) and is_theirs


def _too_late(ask: Ask, chat: Chat) -> str:
    """Somebody was quicker, or the run has ended."""
    if ask.answered_at is None or not ask.answered_by:
        return say("ask.nothing")
    return say("ask.already", who=ask.answered_by, when=when(ask.answered_at, chat.now, chat.timezone))


def _choice(ask: Ask, choice: str) -> str:
    if ask.kind is AskKind.APPROVAL:
        return "yes" if choice == "y" else "no"
    return ask.options[int(choice)] if choice in map(str, range(len(ask.options))) else choice
