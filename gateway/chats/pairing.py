"""Answers strangers: one code that is valid for an hour, or silence. Nothing of what they say is kept."""

import re

from sqlalchemy import Connection

from gateway.commands import Parsed
from gateway.observe.logging import get_logger
from gateway.texts import say
from sessions import people
from sessions.keys import Address, ChatKind
from sessions.messages import Inbound, InboundKind

log = get_logger(__name__)

START = "start"
_CODE = re.compile(r"(?:start\s+)?([A-Z2-9]{4}-?[A-Z2-9]{4})", re.IGNORECASE)
"""The owner's code as people type it who leave the slash out."""


def answer_stranger(conn: Connection, inbound: Inbound, parsed: Parsed | None, now: int, *, pair: bool) -> str:
    """Returns the reply to a stranger; empty for none. `pair`: strangers get a code."""
    if parsed is None:
        code = found[1] if (found := _CODE.fullmatch(inbound.text.strip())) else ""
    else:
        code = parsed.argument if parsed.name == START else ""
    if greeting := redeem_owner_code(conn, inbound, code, now):
        return greeting
    if not pair or inbound.kind not in {InboundKind.MESSAGE, InboundKind.TAP}:
        return ""
    platform, sender, where = inbound.address.platform, inbound.sender, inbound.address
    if where.kind is not ChatKind.DM:  # they hear later, alone too, that they were let in
        where = Address(platform=platform, kind=ChatKind.DM, chat_id=sender.id)
    asked = people.ask_in(conn, platform, sender.id, sender.name, where, now)
    if asked is None:
        return ""
    log.info("pair.requested", platform=platform, user_id=sender.id)
    return say("people.pairing", code=asked, owner=say("people.the_owner"))


def redeem_owner_code(conn: Connection, inbound: Inbound, code: str, now: int) -> str:
    """Makes the sender the owner if the code is right, and returns the greeting; empty for any other code."""
    if not code:
        return ""
    platform, sender = inbound.address.platform, inbound.sender
    # Cut: a code has nine characters, and whatever a stranger sends is looked up.
    owner = people.redeem_owner_code(conn, platform, code[:16], sender.id, sender.name, now)
    return say("people.owner", name=sender.name) if owner is not None else ""
