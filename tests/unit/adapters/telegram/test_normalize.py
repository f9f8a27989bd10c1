"""Updates as Telegram sends them, one by one."""

from typing import Any

import pytest
from telegram import Update, User

from adapters.telegram.normalize import normalize
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Attachment, AttachmentKind, Inbound, InboundKind, Quote
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


def test_a_message_in_a_dm() -> None:
    assert one(text="hello") == Inbound(
        dedup_key="tg:42:9",
        address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7"),
        sender=Sender(id="7", name="Ada L"),
        message_id="5",
        text="hello",
        sent_at=1_700_000_000_000,
    )


@pytest.mark.parametrize(
    ("kind", "expected"), [("group", ChatKind.GROUP), ("supergroup", ChatKind.GROUP), ("private", ChatKind.DM)]
)
def test_kinds_of_chats(kind: str, expected: ChatKind) -> None:
    assert one({**GROUP, "type": kind}, text="x").address.kind is expected


def test_a_channel_post_speaks_for_its_channel() -> None:
    post = message(CHANNEL, text="x", sender_chat=CHANNEL, author_signature="Grace")
    del post["from"]
    (inbound,) = read(channel_post=post)
    assert (inbound.address.kind, inbound.sender, inbound.mentioned) == (
        ChatKind.CHANNEL,
        Sender(id="-200", name="Grace"),
        False,
    )


def test_a_thread_is_a_topic_and_nothing_else() -> None:
    assert one(GROUP, text="x", message_thread_id=3, is_topic_message=True).address.thread_id == "3"
    assert one(GROUP, text="x", message_thread_id=3).address.thread_id is None


@pytest.mark.parametrize(
    ("text", "left", "mentioned", "other"),
    [
        ("plain words", "plain words", False, False),
        ("@hermes_bot do it", "do it", True, False),
        ("@Hermes_Bot: do it", "do it", True, False),
        ("😀 please @hermes_bot do it", "😀 please do it", True, False),
        ("do it @hermes_bot", "do it", True, False),
        ("@hermes_bot and @hermes_bot", "and", True, False),
        ("@hermes_bot", "@hermes_bot", True, False),
        ("@grace look", "@grace look", False, True),
        ("@grace and @hermes_bot", "@grace and", True, False),
        ("/stop", "/stop", True, False),
        ("/new@hermes_bot now", "/new now", True, False),
        ("/new@other_bot now", "/new@other_bot now", False, True),
        ("mail a@hermes_bot.org", "mail a@hermes_bot.org", False, False),
        ("say /stop to end", "say /stop to end", False, False),
    ],
)
def test_whom_a_group_message_is_for(text: str, left: str, mentioned: bool, other: bool) -> None:
    inbound = one(GROUP, text=text)
    assert (inbound.text, inbound.mentioned, inbound.mentions_other) == (left, mentioned, other)


def test_a_mention_in_a_caption() -> None:
    photo = [{**FILE, "width": 1, "height": 1}]
    inbound = one(GROUP, photo=photo, caption="@hermes_bot look", caption_entities=auto_entities("@hermes_bot look"))
    assert (inbound.text, inbound.mentioned, len(inbound.attachments)) == ("look", True, 1)


def test_a_mention_without_username() -> None:
    ours = {"type": "text_mention", "offset": 0, "length": 6, "user": BOT}
    assert one(GROUP, text="Hermes do it", entities=[ours]).text == "do it"
    theirs = one(GROUP, text="Graces do it", entities=[{**ours, "user": {**ADA, "id": 8}}])
    assert (theirs.mentioned, theirs.mentions_other) == (False, True)


def test_everything_in_a_dm_is_for_the_bot() -> None:
    inbound = one(text="ask @grace")
    assert (inbound.mentioned, inbound.mentions_other) == (True, False)


def test_a_reply_quotes_what_it_answers() -> None:
    replied = message(GROUP, text="earlier")
    assert one(GROUP, text="x", reply_to_message=replied).quote == Quote(
        message_id="5", text="earlier", sender_name="Ada L"
    )
    assert one(GROUP, text="x", reply_to_message=replied, quote={"text": "earl", "position": 0}).quote == Quote(
        message_id="5", text="earl", sender_name="Ada L"
    )
    captioned = message(GROUP, photo=[{**FILE, "width": 1, "height": 1}], caption="look")
    quote = one(GROUP, text="x", reply_to_message=captioned).quote
    assert quote is not None
    assert quote.text == "look"


def test_a_reply_to_the_bot_is_for_it() -> None:
    inbound = one(GROUP, text="x @grace", reply_to_message=message(GROUP, text="mine", **{"from": BOT}))
    assert (inbound.mentioned, inbound.mentions_other) == (True, False)
    assert inbound.quote == Quote(message_id="5", text="mine", sender_name="Hermes", from_us=True)


def test_the_head_of_a_topic_is_no_quote() -> None:
    head = message(GROUP, forum_topic_created={"name": "T", "icon_color": 1}, **{"from": BOT})
    inbound = one(GROUP, text="x", reply_to_message=head, message_thread_id=3, is_topic_message=True)
    assert (inbound.quote, inbound.mentioned) == (None, False)


def test_a_reply_to_another_chat_is_a_quote_too() -> None:
    origin = {"type": "user", "sender_user": ADA, "date": 1}
    quote = one(
        text="x", external_reply={"origin": origin, "message_id": 3}, quote={"text": "far", "position": 0}
    ).quote
    assert quote == Quote(message_id="3", text="far")


def test_an_edit() -> None:
    (inbound,) = read(edited_message=message(text="better", edit_date=1_700_000_060))
    assert (inbound.kind, inbound.text, inbound.message_id, inbound.sent_at) == (
        InboundKind.EDIT,
        "better",
        "5",
        1_700_000_060_000,
    )


def test_a_tap() -> None:
    card = message(GROUP, text="?", message_thread_id=3, is_topic_message=True, **{"from": BOT})
    (inbound,) = read(
        callback_query={"id": "q1", "from": ADA, "message": card, "chat_instance": "c", "data": "approve:1"}
    )
    assert (inbound.kind, inbound.text, inbound.tap_id, inbound.message_id) == (InboundKind.TAP, "approve:1", "q1", "5")
    assert (inbound.sender.id, inbound.address.thread_id) == ("7", "3")


def test_a_tap_under_a_message_that_is_too_old_to_see() -> None:
    gone = {"message_id": 5, "chat": DM, "date": 0}
    (inbound,) = read(callback_query={"id": "q1", "from": ADA, "message": gone, "chat_instance": "c", "data": "a"})
    assert (inbound.message_id, inbound.address.chat_id) == ("5", "7")


def test_a_photo_comes_in_its_largest_size() -> None:
    small, large = ({**FILE, "file_id": name, "width": width, "height": 10} for name, width in (("s", 90), ("l", 900)))
    inbound = one(photo=[large, small], caption="look")
    assert inbound.text == "look"
    assert inbound.attachments == (
        Attachment(kind=AttachmentKind.IMAGE, name="photo-5.jpg", mime="image/jpeg", size=9, ref="l"),
    )


@pytest.mark.parametrize(
    ("content", "kind", "name", "mime"),
    [
        (
            {"document": {**FILE, "file_name": "a.pdf", "mime_type": "application/pdf"}},
            AttachmentKind.FILE,
            "a.pdf",
            "application/pdf",
        ),
        (
            {"document": {**FILE, "file_name": "a.png", "mime_type": "image/png"}},
            AttachmentKind.IMAGE,
            "a.png",
            "image/png",
        ),
        ({"document": FILE}, AttachmentKind.FILE, "file-5", "application/octet-stream"),
        (
            {"voice": {**FILE, "duration": 1, "mime_type": "audio/ogg"}},
            AttachmentKind.VOICE,
            "voice-5.ogg",
            "audio/ogg",
        ),
        ({"audio": {**FILE, "duration": 1, "file_name": "s.mp3"}}, AttachmentKind.AUDIO, "s.mp3", "audio/mpeg"),
        ({"video": {**FILE, "duration": 1, "width": 1, "height": 1}}, AttachmentKind.VIDEO, "video-5.mp4", "video/mp4"),
        ({"video_note": {**FILE, "duration": 1, "length": 1}}, AttachmentKind.VIDEO, "video-5.mp4", "video/mp4"),
        (
            {"animation": {**FILE, "duration": 1, "width": 1, "height": 1}, "document": FILE},
            AttachmentKind.VIDEO,
            "video-5.mp4",
            "video/mp4",
        ),
    ],
)
def test_files(content: dict[str, Any], kind: AttachmentKind, name: str, mime: str) -> None:
    assert one(**content).attachments == (Attachment(kind=kind, name=name, mime=mime, size=9, ref="f"),)


@pytest.mark.parametrize(
    "content",
    [
        {"location": {"longitude": 1.0, "latitude": 2.0}},
        {"contact": {"phone_number": "1", "first_name": "A"}},
        {"dice": {"emoji": "🎲", "value": 3}},
        {
            "sticker": {
                **FILE,
                "type": "regular",
                "width": 1,
                "height": 1,
                "is_animated": False,
                "is_video": False,
            }
        },
    ],
)
def test_a_kind_that_cannot_be_read_comes_empty(content: dict[str, Any]) -> None:
    inbound = one(**content)
    assert (inbound.kind, inbound.text, inbound.attachments) == (InboundKind.MESSAGE, "", ())


@pytest.mark.parametrize(
    "fields",
    [
        {"new_chat_members": [ADA]},
        {"pinned_message": message(text="x")},
        {"forum_topic_created": {"name": "T", "icon_color": 1}},
        {"new_chat_title": "T"},
        {"text": "mine", "from": BOT},
        {"text": "theirs", "from": OTHER_BOT},
        {"text": "forwarded", "is_automatic_forward": True, "sender_chat": CHANNEL},
    ],
)
def test_what_nobody_said_is_ignored(fields: dict[str, Any]) -> None:
    assert read(message=message(GROUP, **fields)) == []


@pytest.mark.parametrize(
    "content",
    [
        {
            "my_chat_member": {
                "chat": GROUP,
                "from": ADA,
                "date": 1,
                "old_chat_member": {"status": "left", "user": BOT},
                "new_chat_member": {"status": "left", "user": BOT},
            }
        },
        {"something_new": {"a": 1}},
        {"callback_query": {"id": "q", "from": ADA, "chat_instance": "c", "inline_message_id": "i", "data": "x"}},
        {"business_message": message(text="x")},
    ],
)
def test_other_updates_are_ignored(content: dict[str, Any]) -> None:
    assert read(**content) == []


def test_an_anonymous_admin_speaks_for_the_group() -> None:
    anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
    assert one(GROUP, text="x", sender_chat=GROUP, **{"from": anonymous}).sender == Sender(id="-100", name="Team")


def test_a_group_that_became_a_supergroup_has_moved() -> None:
    old = one({"id": -5, "type": "group", "title": "Team"}, migrate_to_chat_id=-100)
    new = one(GROUP, migrate_from_chat_id=-5)
    assert [(i.kind, i.address.chat_id, i.text) for i in (old, new)] == [(InboundKind.MOVED, "-5", "-100")] * 2


def test_positions_outside_the_text_do_no_harm() -> None:
    assert one(GROUP, text="ab", entities=[{"type": "mention", "offset": 1, "length": 90}]).text == "ab"
