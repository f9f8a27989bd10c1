import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.telegram.render import CAPTION, MESSAGE, render, render_draft, utf16_length
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Attachment, AttachmentKind, Button, Outbound

ADDRESS = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7")


def pieces(text: str, **fields):
    return render(Outbound(address=ADDRESS, text=text, **fields))


def marked(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The text, and for each entity its type and what it covers."""
    (piece,) = pieces(text)
    raw = piece["text"].encode("utf-16-le")
    return piece["text"], [
        (e["type"], raw[2 * e["offset"] : 2 * (e["offset"] + e["length"])].decode("utf-16-le"))
        for e in piece["entities"]
    ]


def test_marks_become_entities() -> None:
    text, entities = marked("**bold** *it* `code` ~~gone~~ [site](https://example.org)")
    assert text == "bold it code gone site"
    assert entities == [
        ("bold", "bold"),
        ("italic", "it"),
        ("code", "code"),
        ("strikethrough", "gone"),
        ("text_link", "site"),
    ]


def test_offsets_count_utf16_units() -> None:
    assert marked("😀 **b😀ld** é `x`")[1] == [("bold", "b😀ld"), ("code", "x")]


def test_headings_lists_quotes_and_rules() -> None:
    text, entities = marked(
        "# Title\n\nintro\n\n- one\n  - two\n- three\n\n2. a\n3. b\n\n> said\n> more\n>\n> end\n\n---"
    )
    assert text == "Title\n\nintro\n\n• one\n  • two\n• three\n\n2. a\n3. b\n\nsaid\nmore\n\nend\n\n———"
    assert entities == [("bold", "Title"), ("blockquote", "said\nmore\n\nend")]


def test_fences_keep_their_code_and_language() -> None:
    (piece,) = pieces("```python\nx = '**no**'\n\n  y\n```")
    assert piece["text"] == "x = '**no**'\n\n  y"
    assert piece["entities"] == [{"type": "pre", "offset": 0, "length": 17, "language": "python"}]


def test_entities_that_telegram_does_not_nest_are_kept_apart() -> None:
    assert marked("**a `b` c**")[1] == [("bold", "a "), ("bold", " c"), ("code", "b")]
    assert marked("[`x`](https://example.org)")[1] == [("text_link", "x")]
    assert marked("[![alt](https://example.org/i.png)](https://example.org)")[1] == [("text_link", "alt")]


def test_a_link_that_cannot_be_opened_shows_its_target() -> None:
    assert marked("[notes](notes.md)") == ("notes (notes.md)", [])


def test_narrow_tables_are_grids_and_wide_ones_records() -> None:
    assert marked("| a | bb |\n|---|---|\n| 1 | 2 |")[0] == "a  bb\n1  2"
    wide = "word " * 10
    assert marked(f"| a | b |\n|---|---|\n| {wide} | {wide} |")[0] == f"a: {wide.strip()}\nb: {wide.strip()}"


def test_buttons_are_on_the_last_piece_and_the_quote_on_the_first() -> None:
    first, last = pieces(
        "x " * 3000, buttons=(Button(label="Approve", data="a"), Button(label="Deny", data="d")), reply_to="5"
    )
    assert first["reply_parameters"] == {"message_id": 5, "allow_sending_without_reply": True}
    assert "reply_markup" not in first
    assert "reply_parameters" not in last
    assert last["reply_markup"] == {
        "inline_keyboard": [[{"text": "Approve", "callback_data": "a"}, {"text": "Deny", "callback_data": "d"}]]
    }


def test_long_labels_get_a_row_each() -> None:
    (piece,) = pieces("?", buttons=tuple(Button(label="a long label " + n, data=n) for n in "123"))
    assert [len(row) for row in piece["reply_markup"]["inline_keyboard"]] == [1, 1, 1]


def test_too_much_button_data_is_refused() -> None:
    with pytest.raises(ValueError, match="'Yes' is longer than 64 bytes"):
        pieces("?", buttons=(Button(label="Yes", data="é" * 33),))


def test_one_notification_per_answer() -> None:
    first, *later = pieces("word " * 2000)
    assert "disable_notification" not in first
    assert all(piece["disable_notification"] for piece in later)
    assert pieces("hi", silent=True)[0]["disable_notification"]


def test_links_get_no_preview() -> None:
    assert pieces("https://example.org")[0]["link_preview_options"] == {"is_disabled": True}


def test_from_the_sixth_piece_on_the_whole_comes_as_a_file() -> None:
    five, six = "x " * 9000, "x " * 13_000
    assert [piece["method"] for piece in pieces(five)] == ["sendMessage"] * 5
    first, file = pieces(six)
    assert first["method"] == "sendMessage"
    assert (file["method"], file["filename"], file["content"]) == ("sendDocument", "answer.md", six)
    assert file["disable_notification"]


def test_files_go_out_by_their_kind() -> None:
    def method(kind: AttachmentKind, mime: str, size: int = 10) -> str:
        attachment = Attachment(kind=kind, name="f", mime=mime, path="/tmp/f", size=size)
        (piece,) = pieces("", attachments=(attachment,))
        assert piece["path"] == "/tmp/f"
        return piece["method"]

    assert method(AttachmentKind.IMAGE, "image/png") == "sendPhoto"
    assert method(AttachmentKind.IMAGE, "image/svg+xml") == "sendDocument"
    assert method(AttachmentKind.IMAGE, "image/png", 20_000_000) == "sendDocument"
    assert method(AttachmentKind.VOICE, "audio/ogg") == "sendVoice"
    assert method(AttachmentKind.FILE, "text/plain") == "sendDocument"


def test_a_single_file_carries_a_short_text() -> None:
    file = Attachment(kind=AttachmentKind.FILE, name="f.txt", path="/tmp/f.txt")
    (piece,) = pieces("**here**", attachments=(file,))
    assert (piece["caption"], piece["caption_entities"]) == ("here", [{"type": "bold", "offset": 0, "length": 4}])
    assert [p["method"] for p in pieces("x " * 600, attachments=(file,))] == ["sendMessage", "sendDocument"]
    assert [p["method"] for p in pieces("here", attachments=(file, file))] == [
        "sendMessage",
        "sendDocument",
        "sendDocument",
    ]


def test_nothing_to_show_is_nothing_to_send() -> None:
    assert pieces("") == pieces(" \n ") == pieces("```\n\n```") == []


def test_a_draft_shows_the_end_of_what_there_is() -> None:
    draft = render_draft("start " + "x " * 4000 + "**end**")
    assert draft["text"].endswith("end")
    assert draft["entities"][-1]["type"] == "bold"
    assert utf16_length(draft["text"]) <= MESSAGE.units
    assert render_draft("")["text"] == ""


MARKS = st.sampled_from(
    [
        "**b**",
        "*i*",
        "`c`",
        "[l](https://example.org)",
        "word",
        "😀",
        "\n\n",
        "\n- ",
        "\n> ",
        "\n```\nx\n```\n",
        "| a | b |",
        "**a `c` b**",
        "~~",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.lists(MARKS, max_size=400).map(" ".join), st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
    ),
    st.integers(1, 40),
)
def test_every_call_is_one_that_telegram_takes(text: str, times: int) -> None:
    for piece in pieces(text * times):
        assert json.loads(json.dumps(piece)) == piece
        if "text" not in piece:
            continue
        length = utf16_length(piece["text"])
        assert 0 < length <= MESSAGE.units
        assert len(piece["entities"]) <= MESSAGE.marks
        for entity in piece["entities"]:
            assert 0 <= entity["offset"] < entity["offset"] + entity["length"] <= length
        for code in (e for e in piece["entities"] if e["type"] in {"code", "pre"}):
            end = code["offset"] + code["length"]
            crossing = [
                e
                for e in piece["entities"]
                if e is not code and e["offset"] < end and e["offset"] + e["length"] > code["offset"]
            ]
            assert all(entity["type"] == "blockquote" for entity in crossing)


@settings(max_examples=50, deadline=None)
@given(st.lists(MARKS, max_size=300).map(" ".join))
def test_captions_stay_short(text: str) -> None:
    for piece in pieces(text, attachments=(Attachment(kind=AttachmentKind.FILE, name="f", path="f"),)):
        assert utf16_length(piece.get("caption", "")) <= CAPTION.units


@pytest.mark.timeout(30)
def test_a_paragraph_of_nothing_but_marks_takes_no_exponential_time() -> None:
    assert pieces("**`a`** [b](https://example.org) " * 1800)
