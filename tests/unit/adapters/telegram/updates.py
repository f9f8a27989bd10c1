"""Updates as Telegram sends them, and what becomes of them."""

from typing import Any

from telegram import Update, User

from adapters.telegram.normalize import normalize
from sessions.messages import Inbound
from tests.fakes.telegram_world import auto_entities

ME = User(id=42, first_name="Hermes", is_bot=True, username="hermes_bot")
ADA = {"id": 7, "is_bot": False, "first_name": "Ada", "last_name": "L", "username": "ada"}
BOT = {"id": 42, "is_bot": True, "first_name": "Hermes", "username": "hermes_bot"}
OTHER_BOT = {"id": 43, "is_bot": True, "first_name": "Other"}
DM = {"id": 7, "type": "private", "first_name": "Ada"}
GROUP = {"id": -100, "type": "supergroup", "title": "Team"}
CHANNEL = {"id": -200, "type": "channel", "title": "News"}
FILE = {"file_id": "f", "file_unique_id": "u", "file_size": 9}


def message(chat: dict[str, Any] = DM, **fields: Any) -> dict[str, Any]:
    body = {"message_id": 5, "date": 1_700_000_000, "chat": chat, "from": ADA, **fields}
    if "text" in fields and "entities" not in fields:
        body["entities"] = auto_entities(fields["text"])
    return body


def read(**content: Any) -> list[Inbound]:
    update = Update.de_json({"update_id": 9, **content}, None)
    assert update is not None
    return normalize(update, ME)


def one(chat: dict[str, Any] = DM, **fields: Any) -> Inbound:
    (inbound,) = read(message=message(chat, **fields))
    return inbound
