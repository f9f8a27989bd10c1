"""Renders Markdown as messages of the Cloud API, with WhatsApp's simple marks, within its limits."""

from typing import Any

from adapters.text.blocks import Style
from adapters.text.lines import LineLayout, Notation
from adapters.text.markdown import parse
from adapters.text.split import Size, split, split_or_file
from sessions.messages import Attachment, AttachmentKind, Outbound, Piece

MESSAGE = Size(4096)
CARD = Size(1024)
"""The text above buttons, and beside a file."""
BUTTONS, LABEL = 3, 20
_IMAGE_BYTES, _AUDIO_BYTES = 5_000_000, 16_000_000
_AUDIO = {"audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg"}


def _escape(text: str) -> str:
    """WhatsApp has no way to write one of its marks as a mere sign."""
    return text


def _link(words: str, url: str) -> str:
    """WhatsApp links addresses, not words."""
    address = url.removeprefix("mailto:")
    return address if words in {url, address} else f"{words} ({address})"


NOTATION = Notation(
    marks={Style.BOLD: ("*", "*"), Style.ITALIC: ("_", "_"), Style.STRIKE: ("~", "~"), Style.CODE: ("`", "`")},
    escape=_escape,
    link=_link,
    tells_language=False,
)


def render(outbound: Outbound) -> list[Piece]:
    layout = LineLayout(NOTATION)
    buttons = outbound.buttons if len(outbound.buttons) <= BUTTONS else ()
    text = _with_options(outbound)
    blocks = parse(text) if text.strip() else ()
    if len(outbound.attachments) == 1 and not buttons and blocks:
        whole = list(split(blocks, CARD, layout.measure))
        if len(whole) == 1 and _file(outbound.attachments[0])["type"] != "audio":
            return [_reply({**_file(outbound.attachments[0]), "caption": layout.compose(whole[0])}, outbound)]
    pieces, as_file = split_or_file(blocks, CARD if buttons else MESSAGE, layout.measure)
    texts = [words for piece in pieces if (words := layout.compose(piece)).strip()]
    calls: list[dict[str, Any]] = [{"type": "text", "text": {"body": words, "preview_url": False}} for words in texts]
    if as_file:
        calls.append({"type": "document", "filename": "answer.md", "content": outbound.text, "mime": "text/plain"})
    if buttons and texts:
        titles: list[str] = []
        for number, button in enumerate(buttons, 1):
            title = button.label if len(button.label) <= LABEL else f"{button.label[: LABEL - 1].rstrip()}…"
            # WhatsApp refuses two buttons with one title.
            titles.append(title if title not in titles else f"{title[: LABEL - 4].rstrip('…')}… {number}")
        keys = [
            {"type": "reply", "reply": {"id": button.data, "title": title}}
            for button, title in zip(buttons, titles, strict=True)
        ]
        calls[len(texts) - 1] = {
            "type": "interactive",
            "interactive": {"type": "button", "body": {"text": texts[-1]}, "action": {"buttons": keys}},
        }
    voice = [_file(file) for file in outbound.attachments if file.kind is AttachmentKind.VOICE]
    calls = [*voice, *calls, *(_file(file) for file in outbound.attachments if file.kind is not AttachmentKind.VOICE)]
    return [_reply(calls[0], outbound), *calls[1:]] if calls else []


def _with_options(outbound: Outbound) -> str:
    """Returns the text, with those labels written out that have no room on a button, or no button."""
    labels = [button.label for button in outbound.buttons]
    if len(labels) <= BUTTONS and all(len(label) <= LABEL for label in labels):
        return outbound.text
    missing = [label for label in labels if f"- {label}" not in outbound.text and not label.endswith("…")]
    listed = "\n".join(f"- {label}" for label in missing)
    return f"{outbound.text}\n\n{listed}" if listed else outbound.text


def _file(attachment: Attachment) -> dict[str, Any]:
    """Returns the call for a file, with the path; the adapter uploads the file and sends its id instead."""
    size, mime = attachment.size or 0, attachment.mime
    match attachment.kind:
        case AttachmentKind.IMAGE if mime in {"image/jpeg", "image/png"} and size <= _IMAGE_BYTES:
            kind = "image"
        case AttachmentKind.VOICE | AttachmentKind.AUDIO if mime in _AUDIO and size <= _AUDIO_BYTES:
            kind = "audio"
        case _:
            kind = "document"
    # Opus in Ogg, which people listen to without a download before.
    spoken = (
        {"voice": True} if attachment.kind is AttachmentKind.VOICE and (kind, mime) == ("audio", "audio/ogg") else {}
    )
    return {"type": kind, "filename": attachment.name, "path": attachment.path, "mime": mime, **spoken}


def _reply(call: dict[str, Any], outbound: Outbound) -> dict[str, Any]:
    return {**call, "context": {"message_id": outbound.reply_to}} if outbound.reply_to else call
