"""Reads the text of a Slack message as people see it, and its files."""

import html
import re
from collections.abc import Iterator

from adapters.payload import Json, parts, text
from sessions.messages import Attachment, AttachmentKind

_TOKEN = re.compile(r"<([^<>\s][^<>]*)>")


def plain_text(raw: str, me: str, *, is_file: bool) -> str:
    """Returns Slack's text without our own mention, with links and other mentions as people see them."""
    mention = re.compile(rf"\s*<@{re.escape(me)}(?:\|[^>]*)?>")
    left = mention.sub("", raw, count=0).strip() if me else raw
    left = re.sub(r"^[,:;]\s*", "", left) if left != raw.strip() else left
    shown = _TOKEN.sub(_shown, left if left or is_file else raw)
    return html.unescape(shown)


def _shown(found: "re.Match[str]") -> str:
    target, _, label = found[1].partition("|")
    match target[0]:
        case "@" | "#":
            return f"{target[0]}{label or target[1:]}"
        case "!":
            return f"@{label.lstrip('@') or target[1:].partition('^')[0]}"
        case _:
            address = target.removeprefix("mailto:")
            return address if not label or label in {target, address} else f"{label} ({target})"


def attachments(message: Json) -> Iterator[Attachment]:
    for file in parts(message, "files"):
        address = text(file, "url_private_download") or text(file, "url_private")
        # A tombstone is a deleted file; one without an address is asked for by its id (Slack Connect).
        if file.get("mode") == "tombstone" or not (address or file.get("id")):
            continue
        mime = text(file, "mimetype") or "application/octet-stream"
        size = file.get("size")
        yield Attachment(
            kind=_kind(file, mime),
            name=text(file, "name") or text(file, "title") or f"file-{text(file, 'id')}",
            mime=mime,
            size=size if isinstance(size, int) else None,
            ref=f"{text(file, 'id')}|{address}",
        )


def _kind(file: Json, mime: str) -> AttachmentKind:
    if file.get("subtype") == "slack_audio":
        return AttachmentKind.VOICE
    if mime in {"image/jpeg", "image/png", "image/gif", "image/webp"}:
        return AttachmentKind.IMAGE
    return {"audio": AttachmentKind.AUDIO, "video": AttachmentKind.VIDEO}.get(
        mime.partition("/")[0], AttachmentKind.FILE
    )
