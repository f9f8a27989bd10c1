"""Builds the edit of a card whose question can no longer be answered: its outcome, without buttons."""

from dataclasses import dataclass

from sqlalchemy import Connection

from gateway.runs.replies import closed_card
from gateway.texts.times import format_short_time
from sessions import asks, outbox
from sessions.records import OutRow


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
