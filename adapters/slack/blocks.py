"""Reads Slack's blocks: their words in the notation of a message's `text`, in which mentions and links stand between `<` and `>`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from adapters.payload import Json, as_object, part, parts, text

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
            yield " | ".join(_cells(cast(list[Any], row), depth))
    yield block_words(part(block, "accessory"), depth + 1)


def _cells(row: Sequence[Any], depth: int) -> Iterator[str]:
    for cell in row:
        yield block_words(as_object(cell), depth + 1).replace("\n", " ")


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
