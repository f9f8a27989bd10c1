"""The neutral blocks of a text, from which every platform renders its own, and the formatting inside of them.

Blocks are a flat list: a nested list or quote shows up as `indent` and `quote` of its blocks. So a splitter never has to cut a tree.
Positions count characters.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from typing import NamedTuple

_LINKABLE = re.compile(r"(?:https?://|tg://|mailto:)\S", re.IGNORECASE)


class Style(StrEnum):
    BOLD = "bold"
    ITALIC = "italic"
    STRIKE = "strike"
    CODE = "code"
    LINK = "link"


class Span(NamedTuple):
    """`style` from `start` up to `end` of the block's text. Spans nest and never cross; outer ones come first. A tuple, because an
    answer may have a thousand."""

    start: int
    end: int
    style: Style
    url: str = ""


def cut_spans(spans: Sequence[Span], start: int, end: int) -> tuple[Span, ...]:
    """Returns the spans as they stand in `text[start:end]`."""
    begun = spans[: bisect_left(spans, end, key=itemgetter(0))]
    if not start:
        return tuple(s if s.end <= end else Span(s.start, end, s.style, s.url) for s in begun)
    return tuple(
        Span(max(s.start, start) - start, min(s.end, end) - start, s.style, s.url) for s in begun if s.end > start
    )


class SpanBuilder:
    """Text and spans of one block, while they are being read."""

    def __init__(self) -> None:
        self.length = 0
        self.spans: list[Span] = []
        self._parts: list[str] = []

    def write(self, part: str) -> None:
        self._parts.append(part)
        self.length += len(part)

    def mark(self, style: Style, start: int) -> None:
        """Marks the text from `start` up to here."""
        if start < self.length:
            self.spans.append(Span(start, self.length, style))

    def link(self, start: int, url: str) -> None:
        """Links the text from `start` up to here. A target that no chat can open is written behind the text."""
        if _LINKABLE.match(url):
            if start < self.length:
                # Inserts a link around the spans that mark the same words.
                link = Span(start, self.length, Style.LINK, url)
                at = len(self.spans)
                while at and self.spans[at - 1][:2] == link[:2]:
                    at -= 1
                self.spans.insert(at, link)
        elif url and url != self._since(start):
            self.write(f" ({url})")

    def _since(self, start: int) -> str:
        begin, at = len(self._parts), self.length
        while at > start:
            begin -= 1
            at -= len(self._parts[begin])
        return "".join(self._parts[begin:])

    def read(self) -> tuple[str, tuple[Span, ...]]:
        if len(self.spans) > 1:
            self.spans.sort(key=itemgetter(1), reverse=True)
            self.spans.sort(key=itemgetter(0))
        return "".join(self._parts), tuple(self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`marker` opens a list item; the item's later blocks have none. `tight`: no blank line before it. `continued`: the rest of a
    block that was cut in two."""

    quote: int = 0
    indent: int = 0
    marker: str = ""
    tight: bool = False
    continued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph(Block):
    text: str
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading(Paragraph):
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence(Block):
    code: str
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Block):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Block):
    """Cells are plain text: no platform formats them."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def plain_text(block: Block) -> str:
    """What a reader sees, without any markup."""
    match block:
        case Paragraph(text=text):
            return text
        case Fence(code=code):
            return code
        case Table(rows=rows):
            lines = rows if block.continued else (block.header, *rows)
            return "\n".join("  ".join(cells) for cells in lines)
        case _:
            return ""
