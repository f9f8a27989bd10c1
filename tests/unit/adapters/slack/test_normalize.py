"""Events as Slack sends them, in neutral words."""

from typing import Any

import pytest

from adapters.slack.normalize import SlackBot, normalize
from sessions.keys import ChatKind
from sessions.messages import AttachmentKind, Inbound, InboundKind

ME = SlackBot(team="T1", user="UBOT")


def normalized(**event: Any) -> list[Inbound]:
    whole = {
        "type": "message",
        "user": "U7",
        "ts": "1795056008.000001",
        "channel": "C1",
        "channel_type": "channel",
        **event,
    }
    return normalize({"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": whole}, ME)


def test_a_mention_and_the_message_that_comes_with_it_are_one() -> None:
    (message,) = normalized(text="<@UBOT> hello")
    (mention,) = normalized(text="<@UBOT> hello", type="app_mention", channel_type=None)
    assert message.dedup_key == mention.dedup_key == "sl:T1:C1:1795056008.000001"
    assert (message.text, message.mentioned) == (mention.text, mention.mentioned) == ("hello", True)
    assert message.address == mention.address
    assert message.address.thread_id == "1795056008.000001"


def test_direct_messages_stay_where_they_are_said() -> None:
    (direct,) = normalized(channel="D7", channel_type="im", text="hi")
    assert (direct.address.kind, direct.address.thread_id, direct.mentioned) == (ChatKind.DM, None, True)
    (threaded,) = normalized(channel="D7", channel_type="im", text="hi", thread_ts="1.1")
    assert threaded.address.thread_id == "1.1"
    (group,) = normalized(channel="G1", channel_type="mpim", text="hi")
    assert (group.address.kind, group.mentioned) == (ChatKind.GROUP, False)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("<@UBOT>, look at <https://x.org/a|this>", "look at this (https://x.org/a)"),
        ("<https://x.org> &amp; &lt;tag&gt;", "https://x.org & <tag>"),
        ("ask <@U2|bob> in <#C2|general>", "ask @bob in #general"),
        ("<!here> lunch <!subteam^S1|@ops>", "@here lunch @ops"),
        ("<mailto:a@x.org|a@x.org>", "a@x.org"),
        ("<@UBOT>", "@UBOT"),
    ],
)
def test_text_as_people_read_it(raw: str, text: str) -> None:
    (said,) = normalized(text=raw)
    assert said.text == text


def test_whom_it_is_for() -> None:
    (other,) = normalized(text="<@U2> your turn")
    assert (other.mentioned, other.mentions_other) == (False, True)
    (all_of_us,) = normalized(text="<!channel> news")
    assert all_of_us.mentions_other
    (thread,) = normalized(text="go on", thread_ts="1.1")
    assert (thread.in_thread, thread.mentioned) == (True, False)
    (root,) = normalized(text="go on", thread_ts="1795056008.000001")
    assert not root.in_thread


def test_files_with_their_addresses() -> None:
    picture = {
        "id": "F1",
        "name": "a.png",
        "mimetype": "image/png",
        "size": 9,
        "url_private_download": "https://files.slack.com/a",
    }
    voice = {
        "id": "F2",
        "name": "v.m4a",
        "mimetype": "audio/mp4",
        "subtype": "slack_audio",
        "url_private": "https://files.slack.com/v",
    }
    gone = {"id": "F3", "mode": "tombstone"}
    (said,) = normalized(text="", subtype="file_share", files=[picture, voice, gone])
    assert [file.kind for file in said.attachments] == [AttachmentKind.IMAGE, AttachmentKind.VOICE]
    assert said.attachments[0].ref == "F1|https://files.slack.com/a"


def test_changes() -> None:
    message = {"type": "message", "user": "U7", "ts": "1.1", "text": "new", "edited": {"ts": "2.2"}}
    (edit,) = normalized(
        subtype="message_changed", message=message, previous_message={**message, "text": "old"}, ts="2.2"
    )
    assert (edit.kind, edit.message_id, edit.text) == (InboundKind.EDIT, "1.1", "new")
    unfurled = {key: value for key, value in message.items() if key != "edited"}
    assert normalized(subtype="message_changed", message=unfurled, previous_message=unfurled) == []
    (gone,) = normalized(subtype="message_deleted", deleted_ts="1.1", previous_message=message)
    assert (gone.kind, gone.message_id) == (InboundKind.DELETED, "1.1")


@pytest.mark.parametrize(
    "event",
    [
        {"bot_id": "B9", "text": "a bot"},
        {"user": "UBOT", "text": "ourselves"},
        {"subtype": "bot_message", "text": "a bot"},
        {"subtype": "channel_join", "text": "joined"},
        {"hidden": True, "text": "hidden"},
        {"type": "reaction_added"},
        {"ts": ["x"], "channel": 7},
    ],
)
def test_what_nobody_said_is_nothing(event: dict[str, Any]) -> None:
    assert normalized(**event) == []


def test_a_command_a_tap_and_the_stop_button() -> None:
    command = {
        "command": "/hermes",
        "text": "title A plan",
        "user_id": "U7",
        "channel_id": "C1",
        "trigger_id": "1.2",
        "response_url": "u",
    }
    (said,) = normalize(command, ME)
    assert (said.text, said.respond_to, said.address.thread_id) == ("/title A plan", "u", None)
    (alone,) = normalize({**command, "text": ""}, ME)
    assert alone.text == "/help"
    actions = [{"type": "button", "value": "a:1:y", "action_ts": "3.3"}, {"type": "button", "value": "somebody else's"}]
    body = {"type": "block_actions", "user": {"id": "U7"}, "channel": {"id": "C1"}, "actions": actions}
    (tap,) = normalize({**body, "container": {"message_ts": "2.2", "thread_ts": "1.1"}}, ME)
    assert (tap.kind, tap.text, tap.message_id, tap.address.thread_id) == (InboundKind.TAP, "a:1:y", "2.2", "1.1")
    (stop,) = normalized(type="agent_session_stopped", thread_ts="1.1", event_ts="4.4")
    assert (stop.text, stop.address.thread_id) == ("/stop", "1.1")
