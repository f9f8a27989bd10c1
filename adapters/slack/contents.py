"""Reads what a Slack message holds: its text as people see it, its blocks, what was forwarded with it, and its files."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from adapters.http import Json, as_object, attachment_kind, part, parts, text
from sessions.messages import Attachment, AttachmentKind, Quote

_DEEPEST = 8
_TEXTS = ("title", "subtitle", "text", "body", "description", "details", "label")
_HOLDERS = ("blocks", "elements", "items", "rows", "cards", "tasks")


def block_words(block: Json, depth: int = 0) -> str:
    """Returns the words of a block, or of an element of one; of a kind that is not known, all words that it holds."""
    kind = text(block, "type")
    if not block or depth > _DEEPEST:
        return ""
    if kind in _LEAVES:
        return _LEAVES[kind](block)
    inside = [block_words(one, depth + 1) for one in parts(block, "elements")]
    match kind:
        case "rich_text_section":
            return "".join(inside)
        case "rich_text_preformatted":
            return f"```\n{''.join(inside)}\n```"
        case "rich_text_quote":
            return "\n".join(f"&gt; {line}" for line in "".join(inside).splitlines())
        case "rich_text_list":
            return "\n".join(_items(block, inside))
        case _:
            return "\n".join(filter(None, _all_words(block, depth)))


def _all_words(block: Json, depth: int) -> Iterator[str]:
    for key in _TEXTS:
        value = block.get(key)
        yield _escaped(value) if isinstance(value, str) else block_words(as_object(value), depth + 1)
    for key in ("fields", *_HOLDERS):
        yield from (block_words(one, depth + 1) for one in parts(block, key))
    rows = block.get("rows")
    for row in cast(list[Any], rows) if isinstance(rows, list) else ():
        if isinstance(row, list):
            cells = (block_words(as_object(cell), depth + 1) for cell in cast(list[Any], row))
            yield " | ".join(cell.replace("\n", " ") for cell in cells)
    yield block_words(part(block, "accessory"), depth + 1)


def _items(block: Json, inside: Sequence[str]) -> Iterator[str]:
    indent, offset = block.get("indent"), block.get("offset")
    before = "    " * indent if isinstance(indent, int) and 0 <= indent <= _DEEPEST else ""
    for number, item in enumerate(inside, 1 + (offset if isinstance(offset, int) else 0)):
        yield f"{before}{f'{number}.' if block.get('style') == 'ordered' else '•'} {item}"


def _link(element: Json) -> str:
    url, label = text(element, "url"), text(element, "text")
    return f"<{url}|{_escaped(label)}>" if label else f"<{url}>"


def _named(element: Json) -> str:
    title = text(part(element, "title"), "text") or text(element, "title") or text(element, "alt_text")
    return _escaped(f"[{text(element, 'type')} {title}]" if title else f"[{text(element, 'type')}]")


def _escaped(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_LEAVES: dict[str, Callable[[Json], str]] = {
    "text": lambda element: _escaped(text(element, "text")),
    "plain_text": lambda element: _escaped(text(element, "text")),
    "raw_text": lambda element: _escaped(text(element, "text")),
    "raw_number": lambda element: _escaped(text(element, "text") or text(element, "value")),
    "mrkdwn": lambda element: text(element, "text"),
    "markdown": lambda element: text(element, "text"),
    "link": _link,
    "user": lambda element: f"<@{text(element, 'user_id')}>",
    "usergroup": lambda element: f"<!subteam^{text(element, 'usergroup_id')}>",
    "channel": lambda element: f"<#{text(element, 'channel_id')}>",
    "broadcast": lambda element: f"<!{text(element, 'range')}>",
    "emoji": lambda element: f":{text(element, 'name')}:",
    "date": lambda element: _escaped(text(element, "fallback")),
    "button": lambda element: f"[{text(part(element, 'text'), 'text')}]",
    "image": _named,
    "video": _named,
    "divider": lambda _: "",
}


_TOKEN = re.compile(r"<([^<>\s][^<>]*)>")
_LETTERS = re.compile(r"[\W_]+")


def describe_contents(message: Json, me: str = "") -> str:
    """Returns the words of a message, a quoted or a forwarded one: its text or, where they say more, its blocks; then its attachments,
    without previews of links. `me`: our own mention is taken out.
    """
    said = plain_text(_said(message), me, is_file=bool(message.get("files") or message.get("attachments")))
    others = [_attachment(one) for one in parts(message, "attachments") if not (_is_forward(one) or _is_preview(one))]
    return "\n".join(filter(None, (said, *others)))


def forwarded(message: Json) -> Quote | None:
    """Returns what somebody else said, and the sender passes on with this message."""
    shares = [one for one in parts(message, "attachments") if _is_forward(one)]
    if not shares:
        return None
    return Quote(
        message_id=text(shares[0], "ts"),
        text="\n\n".join(filter(None, (_attachment(one) for one in shares))),
        sender_name=text(shares[0], "author_name") or text(shares[0], "author_subname") or "somebody",
        attachments=tuple(file for one in shares for file in attachments(one)),
        forwarded=True,
    )


def raw_mentions(message: Json) -> str:
    """Returns the text in Slack's notation, in which mentions stand, without what was forwarded."""
    return _said(message)


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


def _said(message: Json) -> str:
    """Returns text or blocks, whichever says more: the text is cut in long messages, has no tables, and may be missing."""
    said, whole = text(message, "text"), "\n".join(filter(None, map(block_words, parts(message, "blocks"))))
    return whole if len(_LETTERS.sub("", whole)) > len(_LETTERS.sub("", said)) else said


def _is_forward(attachment: Json) -> bool:
    return bool(attachment.get("is_share") or (attachment.get("message_blocks") and not attachment.get("original_url")))


def _is_preview(attachment: Json) -> bool:
    return bool(attachment.get("from_url") or attachment.get("original_url") or attachment.get("is_msg_unfurl"))


def _attachment(one: Json) -> str:
    inner = [block for held in parts(one, "message_blocks") for block in parts(part(held, "message"), "blocks")]
    said = _said({"text": text(one, "text"), "blocks": inner or one.get("blocks")})
    title, link = text(one, "title"), text(one, "title_link")
    lines = [
        text(one, "pretext"),
        "" if _is_forward(one) else text(one, "author_name"),
        f"<{link}|{title}>" if title and link else title,
        said,
        *(f"{text(each, 'title')}: {text(each, 'value')}".strip(": ") for each in parts(one, "fields")),
        "" if _is_forward(one) else text(one, "footer"),
    ]
    shown = "\n".join(filter(None, lines)) or text(one, "fallback")
    return plain_text(shown, "", is_file=True)


def attachments(message: Json) -> Iterator[Attachment]:
    for file in parts(message, "files"):
        address = text(file, "url_private_download") or text(file, "url_private")
        # A tombstone is a deleted file; one without an address is asked for by its id (Slack Connect).
        if file.get("mode") == "tombstone" or not (address or file.get("id")):
            continue
        mime = text(file, "mimetype") or "application/octet-stream"
        size = file.get("size")
        yield Attachment(
            kind=AttachmentKind.VOICE if file.get("subtype") == "slack_audio" else attachment_kind(mime),
            name=text(file, "name") or text(file, "title") or f"file-{text(file, 'id')}",
            mime=mime,
            size=size if isinstance(size, int) else None,
            ref=f"{text(file, 'id')}|{address}",
        )
