"""What is remembered of messages to know an edit that changes nothing."""

from dataclasses import replace

from gateway.chats.intake import EditFilter
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Attachment, AttachmentKind, Inbound, InboundKind

CHAT = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7")
SAID = Inbound(dedup_key="1", address=CHAT, sender=Sender(id="7"), message_id="1", text="hello")
SAME = replace(SAID, kind=InboundKind.EDIT, dedup_key="2")
PHOTO = Attachment(kind=AttachmentKind.IMAGE, name="a.jpg", size=5, ref="one")


def test_an_edit_is_held_against_what_was_said_last():
    known = EditFilter()
    assert not known.is_unchanged(SAME)
    known.note(SAID)
    assert known.is_unchanged(SAME)
    other = replace(SAME, text="good day")
    assert not known.is_unchanged(other)
    known.note(other)
    known.note(SAID)  # the platform sends it again
    assert known.is_unchanged(other)


def test_a_mention_and_another_file_are_changes_and_another_reference_is_none():
    known = EditFilter()
    known.note(replace(SAID, attachments=(PHOTO,)))
    assert known.is_unchanged(replace(SAME, attachments=(replace(PHOTO, ref="two"),)))
    assert not known.is_unchanged(replace(SAME, attachments=(replace(PHOTO, size=6),)))
    assert not known.is_unchanged(SAME)
    assert not known.is_unchanged(replace(SAME, attachments=(PHOTO,), mentioned=False))


def test_only_the_last_ones_are_known_and_only_of_their_chat():
    known = EditFilter(kept=2)
    for number in range(3):
        known.note(replace(SAID, message_id=str(number)))
    assert [known.is_unchanged(replace(SAME, message_id=str(number))) for number in range(3)] == [False, True, True]
    assert not known.is_unchanged(replace(SAME, address=replace(CHAT, chat_id="8")))
