"""What the model is told of messages as other people's clients send them: forwards, tables, cards, orders, contents newer than our libraries.

`tests/fixtures/<platform>/*.json` holds an event each, in the form of the platform's published schema, and what it has to become.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import discord
import pytest
from telegram import Message, Update, User

from adapters.discord.listener import wanted_intents
from adapters.discord.normalize import DiscordBot, message
from adapters.discord.rest import new_client
from adapters.slack.normalize import SlackBot
from adapters.slack.normalize import normalize as slack
from adapters.telegram.normalize import normalize as telegram
from adapters.whatsapp.normalize import events
from adapters.whatsapp.normalize import normalize as whatsapp
from sessions.messages import Inbound, Quote

FIXTURES = Path(__file__).parents[2] / "fixtures"


def from_slack(event: Any) -> list[Inbound]:
    body = {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event}
    return slack(body, SlackBot(team="T1", user="UBOT"))


def from_telegram(event: Any) -> list[Inbound]:
    update = Update.de_json(event, None)
    return telegram(update, User(id=42, first_name="Hermes", is_bot=True, username="hermes_bot"))


def from_discord(event: Any) -> list[Inbound]:
    client = new_client(wanted_intents())
    state: Any = client._connection
    channel = client.get_partial_messageable(int(event["channel_id"]), type=discord.ChannelType.private)
    found = message(state.create_message(channel=channel, data=event), DiscordBot(id=42))
    return [] if found is None else [found]


def from_whatsapp(event: Any) -> list[Inbound]:
    return [found for each, value in events(event, "106540352242922") for found in whatsapp(each, value)]


READ: dict[str, Callable[[Any], list[Inbound]]] = {
    "slack": from_slack,
    "telegram": from_telegram,
    "discord": from_discord,
}
PAYLOADS = [path for name in READ for path in sorted((FIXTURES / name).glob("*.json"))]


@pytest.mark.parametrize("path", PAYLOADS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_others_send(path: Path) -> None:
    payload = json.loads(path.read_text())
    (inbound,) = READ[path.parent.name](payload["event"])
    assert_like(inbound, payload["expect"])


def assert_like(found: Inbound | Quote, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        given = getattr(found, name)
        if isinstance(given, Quote):
            assert_like(given, value)
        elif name == "attachments":
            assert [file.name for file in given] == value
        elif name == "address":
            assert {key: getattr(given, key) for key in value} == value
        else:
            assert given == value, name


def test_contents_that_are_newer_than_the_library() -> None:
    """Where this fails, the library has learned to read one of them, and our own reading of it can go."""
    content = {"animation", "audio", "caption", "checklist", "contact", "dice", "direct_messages_topic", "document"}
    content |= {"external_reply", "forward_origin", "game", "invoice", "live_photo", "location", "paid_media", "photo"}
    content |= {"poll", "quote", "reply_to_message", "reply_to_story", "rich_message", "sticker", "story", "text"}
    content |= {"venue", "video", "video_note", "voice"}
    assert {name for name in content if not hasattr(Message, name)} == {"rich_message"}


def test_components_that_are_newer_than_the_library() -> None:
    """The library leaves out what it does not know. Where this fails, a message may hold one of these, and the model does not see it."""
    published = set(range(1, 15)) | {17, 18, 19, 21, 22, 23}
    assert published - {int(kind) for kind in discord.ComponentType} == set()
