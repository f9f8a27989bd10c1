"""Events as Meta posts them, in neutral words."""

from typing import Any

import pytest

from adapters.whatsapp.normalize import events, normalize
from sessions.keys import ChatKind
from sessions.messages import AttachmentKind, Inbound, InboundKind

NUMBER_ID = "106540352242922"
ABOUT = {"display_phone_number": "15550783881", "phone_number_id": NUMBER_ID}
ANN = {"profile": {"name": "Ann"}, "wa_id": "491700000001", "user_id": "DE.1349"}


def payload(*, contacts: list[Any] | None = None, field: str = "messages", **value: Any) -> dict[str, Any]:
    whole = {"messaging_product": "whatsapp", "metadata": ABOUT, "contacts": contacts or [ANN], **value}
    return {
        "object": "whatsapp_business_account",
        "entry": [{"id": "1", "changes": [{"value": whole, "field": field}]}],
    }


def normalized(message: dict[str, Any], **more: Any) -> list[Inbound]:
    whole = {"from": "491700000001", "id": "wamid.A", "timestamp": "1697043223", **message}
    return [
        each
        for event, value in events(payload(messages=[whole], **more), NUMBER_ID)
        for each in normalize(event, value)
    ]


def test_a_text_comes_with_both_ids_of_its_sender() -> None:
    (said,) = normalized({"type": "text", "text": {"body": "hello"}})
    assert (said.text, said.sender.id, said.sender.name, said.same_as) == ("hello", "491700000001", "Ann", "DE.1349")
    assert (said.dedup_key, said.address.chat_id, said.address.kind) == ("wa:wamid.A", "491700000001", ChatKind.DM)
    assert said.sent_at == 1697043223000


def test_a_sender_without_a_number_is_known_by_the_business_scoped_id() -> None:
    contact = {"profile": {"name": "Bea"}, "user_id": "DE.77"}
    whole = {"id": "wamid.B", "from_user_id": "DE.77", "type": "text", "text": {"body": "hi"}}
    ((event, value),) = events(payload(messages=[whole], contacts=[contact]), NUMBER_ID)
    (said,) = normalize(event, value)
    assert (said.sender.id, said.address.chat_id, said.same_as) == ("DE.77", "DE.77", "")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            {"type": "location", "location": {"latitude": 1.5, "longitude": 2.5, "name": "Home"}},
            "[location 1.5 2.5, Home]",
        ),
        (
            {"type": "contacts", "contacts": [{"name": {"formatted_name": "Bob"}, "phones": [{"phone": "+1 555"}]}]},
            "[contact Bob, +1 555]",
        ),
        ({"type": "button", "button": {"payload": "x", "text": "Yes"}}, "Yes"),
        ({"type": "text", "text": {"body": "Stop!"}}, "/stop"),
        ({"type": "text", "text": {"body": "stop it"}}, "stop it"),
        ({"type": "unsupported", "errors": [{"code": 131051}]}, ""),
        ({"type": "poll", "poll": {}}, ""),
    ],
)
def test_kinds_in_words(message: dict[str, Any], text: str) -> None:
    (said,) = normalized(message)
    assert (said.text, said.attachments) == (text, ())


def test_a_voice_message_and_a_document() -> None:
    (voice,) = normalized({"type": "audio", "audio": {"id": "9", "mime_type": "audio/ogg; codecs=opus", "voice": True}})
    assert (voice.attachments[0].kind, voice.attachments[0].mime) == (AttachmentKind.VOICE, "audio/ogg")
    (file,) = normalized(
        {
            "type": "document",
            "document": {"id": "8", "filename": "a.pdf", "mime_type": "application/pdf", "caption": "see"},
        }
    )
    assert (file.text, file.attachments[0].name, file.attachments[0].ref) == ("see", "a.pdf", "8")


def test_a_tap_an_edit_and_a_message_taken_back() -> None:
    reply = {"type": "button_reply", "button_reply": {"id": "a:3:y", "title": "Approve"}}
    (tap,) = normalized(
        {"type": "interactive", "interactive": reply, "context": {"from": "15550783881", "id": "wamid.CARD"}}
    )
    assert (tap.kind, tap.text, tap.message_id) == (InboundKind.TAP, "a:3:y", "wamid.CARD")
    edit = {"original_message_id": "wamid.OLD", "message": {"type": "text", "text": {"body": "new words"}}}
    (edited,) = normalized({"type": "edit", "edit": edit})
    assert (edited.kind, edited.text, edited.message_id) == (InboundKind.EDIT, "new words", "wamid.OLD")
    (gone,) = normalized({"type": "revoke", "revoke": {"original_message_id": "wamid.OLD"}})
    assert (gone.kind, gone.message_id) == (InboundKind.DELETED, "wamid.OLD")


def test_in_a_group_a_mention_or_a_reply_is_meant_for_us() -> None:
    (other,) = normalized({"group_id": "g1", "type": "text", "text": {"body": "hello all"}})
    assert (other.address.kind, other.address.chat_id, other.mentioned) == (ChatKind.GROUP, "g1", False)
    (named,) = normalized({"group_id": "g1", "type": "text", "text": {"body": "@15550783881 hello"}})
    assert (named.mentioned, named.text, named.by_reply) == (True, "hello", False)
    (reply,) = normalized(
        {"group_id": "g1", "type": "text", "text": {"body": "yes"}, "context": {"from": "15550783881", "id": "wamid.Q"}}
    )
    assert (reply.mentioned, reply.by_reply) == (True, True)
    (not_us,) = normalized({"group_id": "g1", "type": "text", "text": {"body": "@491700000099 look"}})
    assert not_us.mentions_other


def test_what_nobody_said_is_nothing() -> None:
    assert normalized({"type": "reaction", "reaction": {"message_id": "m", "emoji": "x"}}) == []
    assert normalized({"from": "15550783881", "type": "text", "text": {"body": "our own"}}) == []
    assert list(events(payload(message_echoes=[{"id": "1"}], field="smb_message_echoes"), NUMBER_ID)) == []
    assert list(events(payload(messages=[{"id": "1"}]), "another number")) == []
    for nonsense in (None, [], "x", {"entry": {}}, {"entry": [{"changes": [7]}]}):
        assert list(events(nonsense, NUMBER_ID)) == []


def test_a_new_number_and_a_failed_message() -> None:
    system = {"type": "user_changed_number", "wa_id": "491700000002", "body": "changed"}
    (moved,) = normalized({"type": "system", "system": system})
    assert (moved.kind, moved.address.chat_id, moved.text) == (InboundKind.MOVED, "491700000001", "491700000002")
    status = {"id": "wamid.OUT", "status": "failed", "recipient_id": "491700000001", "errors": [{"code": 131047}]}
    ((event, value),) = events(payload(statuses=[status]), NUMBER_ID)
    (failed,) = normalize(event, value)
    assert (failed.kind, failed.message_id) == (InboundKind.FAILED, "wamid.OUT")
    assert "24 hours" in failed.text
    ((event, value),) = events(payload(statuses=[{"id": "x", "status": "delivered"}]), NUMBER_ID)
    assert normalize(event, value) == []


def test_another_persons_ids_are_not_the_senders() -> None:
    (said,) = normalized({"from": "491700000009", "type": "text", "text": {"body": "hi"}})
    assert (said.sender.id, said.sender.name, said.same_as) == ("491700000009", "", "")
