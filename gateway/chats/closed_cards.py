"""Cards whose question nobody can answer any more: what they say then, without their buttons."""

from dataclasses import dataclass

from sqlalchemy import Connection

from gateway.runs.replies import closed_card
from gateway.texts.times import when
from sessions import asks, outbox
from sessions.records import OutRow


@dataclass(frozen=True, slots=True, kw_only=True)
class CardEdit:
    """The platform's message `message_id`, the `part`th piece of the card, is to become that piece of `text`. Nothing where there is
    no `message_id`."""

    message_id: str = ""
    part: int = 1
    text: str = ""


def edit_of(conn: Connection, row: OutRow, ask_id: int, now: int, timezone: str) -> CardEdit:
    """Of the last piece of the card, which had the buttons; nothing where the card has not arrived, or the ask is gone."""
    ask, pieces = asks.get(conn, ask_id), outbox.followed(conn, row)
    if ask is None or not pieces:
        return CardEdit()
    text = closed_card(ask, when(ask.answered_at or now, now, timezone))
    return CardEdit(message_id=pieces[-1], part=len(pieces), text=text)
