"""Updates as Telegram sends them, one by one."""

import inspect
from typing import Any

import pytest
from telegram import ChatMemberRestricted

from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Inbound, InboundKind, Quote
from tests.fakes.telegram_world import auto_entities
from tests.unit.adapters.telegram.updates import ADA, BOT, CHANNEL, DM, FILE, GROUP, OTHER_BOT, message, one, read


def membership(chat: dict[str, Any], before: str, after: str, **more: Any) -> list[Inbound]:
    old, new = ({"status": status, "user": BOT, "until_date": 0, **more} for status in (before, after))
    return read(my_chat_member={"chat": chat, "from": ADA, "date": 1, "old_chat_member": old, "new_chat_member": new})


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


@pytest.mark.parametrize(
    ("text", "for_any_bot"),
    [
        ("/stop", True),
        ("/weather Berlin", True),
        ("/new@hermes_bot", False),
        ("/new @hermes_bot", False),
        ("hi", False),
    ],
)
def test_a_command_that_names_no_bot_says_so(text: str, for_any_bot: bool) -> None:
    assert one(GROUP, text=text).for_any_bot is for_any_bot
    assert one(text=text).for_any_bot is False
    ours = message(GROUP, text="mine", **{"from": BOT})
    assert one(GROUP, text=text, reply_to_message=ours).for_any_bot is False


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


def test_a_reply_brings_the_files_of_what_it_answers_but_not_our_own() -> None:
    photo = {"photo": [{**FILE, "width": 1, "height": 1}]}
    quote = one(GROUP, text="x", reply_to_message=message(GROUP, **photo)).quote
    ours = one(GROUP, text="x", reply_to_message=message(GROUP, **photo, **{"from": BOT})).quote
    assert quote is not None
    assert ours is not None
    assert [(file.name, file.ref) for file in quote.attachments] == [("photo-5.jpg", "f")]
    assert (ours.text, ours.attachments) == ("[image]", ())


@pytest.mark.parametrize(("author", "count"), [(ADA, 1), (BOT, 0)])
def test_so_does_a_reply_to_another_chat(author: dict[str, Any], count: int) -> None:
    origin = {"type": "user", "sender_user": author, "date": 1}
    quote = one(text="x", external_reply={"origin": origin, "voice": {**FILE, "duration": 1}}).quote
    assert quote is not None
    assert (quote.text, len(quote.attachments)) == ("[voice]", count)


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
    assert quote == Quote(message_id="3", text="far", sender_name="Ada L")


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


@pytest.mark.parametrize(
    ("chat", "before", "after", "kind"),
    [
        (GROUP, "left", "member", InboundKind.JOINED),
        (GROUP, "kicked", "member", InboundKind.JOINED),
        (GROUP, "member", "kicked", InboundKind.LEFT),
        (GROUP, "member", "left", InboundKind.LEFT),
        (GROUP, "left", "kicked", None),
        (DM, "member", "kicked", InboundKind.LEFT),
        (DM, "kicked", "member", None),
        (CHANNEL, "left", "member", None),
        (CHANNEL, "member", "left", InboundKind.LEFT),
    ],
)
def test_coming_and_going(chat: dict[str, Any], before: str, after: str, kind: InboundKind | None) -> None:
    found = membership(chat, before, after)
    assert [inbound.kind for inbound in found] == ([kind] if kind else [])
    for inbound in found:
        assert (inbound.sender.id, inbound.address.chat_id, inbound.text) == ("7", str(chat["id"]), "")


@pytest.mark.parametrize(("is_member", "kinds"), [(True, []), (False, [InboundKind.LEFT])])
def test_who_is_restricted_may_still_be_in(is_member: bool, kinds: list[InboundKind]) -> None:
    rights = {name: False for name in inspect.signature(ChatMemberRestricted).parameters if name.startswith("can_")}
    assert [i.kind for i in membership(GROUP, "member", "restricted", is_member=is_member, **rights)] == kinds


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
