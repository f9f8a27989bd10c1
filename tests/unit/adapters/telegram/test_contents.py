"""What a message holds besides its text."""

from typing import Any

import pytest

from sessions.messages import Attachment, AttachmentKind, InboundKind
from tests.unit.adapters.telegram.updates import ADA, BOT, CHANNEL, FILE, GROUP, message, one, read

STICKER = {**FILE, "type": "regular", "width": 1, "height": 1, "is_animated": False, "is_video": False}


PLACE = {"longitude": 13.4, "latitude": 52.5}


POLL = {
    "id": "1",
    "question": "Lunch?",
    "options": [{"text": name, "voter_count": 0, "persistent_id": name} for name in ("Soup", "Salad")],
    "total_voter_count": 0,
    "is_closed": False,
    "is_anonymous": True,
    "type": "regular",
    "allows_multiple_answers": False,
    "allows_revoting": True,
    "members_only": False,
}


@pytest.mark.parametrize(
    ("content", "quoted"),
    [
        ({"location": {"longitude": 1.0, "latitude": 2.0}}, "[location 2.00000 1.00000]"),
        ({"voice": {**FILE, "duration": 1}}, "[voice]"),
        ({"photo": [{**FILE, "width": 1, "height": 1}]}, "[image]"),
    ],
)
def test_a_reply_to_something_without_text_says_what_it_is(content: dict[str, Any], quoted: str) -> None:
    quote = one(text="x", reply_to_message=message(**content)).quote
    assert quote is not None
    assert quote.text == quoted


@pytest.mark.parametrize(
    ("origin", "whose"),
    [
        ({"type": "user", "sender_user": ADA}, "Ada L"),
        ({"type": "user", "sender_user": BOT}, "you"),
        ({"type": "hidden_user", "sender_user_name": "Shy"}, "Shy"),
        ({"type": "chat", "sender_chat": GROUP}, "Team"),
        ({"type": "channel", "chat": CHANNEL, "message_id": 3}, "News"),
    ],
)
def test_what_is_forwarded_says_whose_words_it_brings(origin: dict[str, Any], whose: str) -> None:
    assert one(text="x", forward_origin={**origin, "date": 1}).forwarded_from == whose
    assert one(text="x").forwarded_from == ""


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
    ("content", "words"),
    [
        ({"sticker": {**STICKER, "emoji": "👍"}}, "[sticker 👍]"),
        ({"sticker": STICKER}, "[sticker]"),
        ({"dice": {"emoji": "🎲", "value": 3}}, "[dice 🎲 3]"),
        ({"location": PLACE}, "[location 52.50000 13.40000]"),
        (
            {"venue": {"location": PLACE, "title": "Zoo", "address": "Road 1"}, "location": PLACE},
            "[place Zoo, Road 1, 52.50000 13.40000]",
        ),
        ({"contact": {"phone_number": "+491", "first_name": "A", "last_name": "B"}}, "[contact A B, +491]"),
        ({"poll": POLL}, "[poll: Lunch? (Soup / Salad)]"),
        (
            {"checklist": {"title": "Trip", "tasks": [{"id": 1, "text": "pack", "completion_date": 5}]}},
            "Checklist Trip:\n- [x] pack",
        ),
    ],
)
def test_what_is_no_text_is_told_in_words(content: dict[str, Any], words: str) -> None:
    inbound = one(**content)
    assert (inbound.kind, inbound.text, inbound.attachments) == (InboundKind.MESSAGE, words, ())


def test_a_live_location_is_told_once() -> None:
    assert one(location={**PLACE, "live_period": 900}).text
    moved = message(location={**PLACE, "live_period": 900}, edit_date=1_700_000_060)
    assert read(edited_message=moved) == []


def test_a_checklist_is_told_once_however_much_is_ticked_off() -> None:
    ticked = {"title": "Trip", "tasks": [{"id": 1, "text": "pack", "completion_date": 5}]}
    assert read(edited_message=message(checklist=ticked, edit_date=1_700_000_060)) == []


@pytest.mark.parametrize("content", [{"story": {"chat": CHANNEL, "id": 1}}, {"not_yet_invented": {"a": 1}}])
def test_a_kind_that_cannot_be_read_comes_empty(content: dict[str, Any]) -> None:
    inbound = one(**content)
    assert (inbound.kind, inbound.text, inbound.attachments) == (InboundKind.MESSAGE, "", ())


def test_nothing_unheard_of_is_for_us_in_a_group() -> None:
    assert read(message=message(GROUP, not_yet_invented={"a": 1})) == []
