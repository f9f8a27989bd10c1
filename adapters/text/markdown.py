"""One parse of Markdown into neutral blocks, from which every platform renders its own text.

The blocks are a flat list: a nested list or quote shows up as `indent` and `quote` of its blocks. So a splitter never has to cut a
tree. Plain text that means nothing in Markdown comes through as it is; nothing a model writes is dropped.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

PARSED_CHARS = 30_000  # what follows is plain text: nobody reads it formatted, and parsing time stays bounded
_NESTING = 20  # the parser drops the inside of what is nested deeper, so such text is not parsed at all
_LINKABLE = re.compile(r"(?:https?://|tg://|mailto:)\S", re.IGNORECASE)


class Style(StrEnum):
    BOLD = "bold"
    ITALIC = "italic"
    STRIKE = "strike"
    CODE = "code"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Span:
    """`style` from `start` up to `end`, counted in characters of the block's text. Spans nest and never cross; outer ones come first."""

    start: int
    end: int
    style: Style
    url: str = ""


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


def parse(markdown: str) -> tuple[Block, ...]:
    head, tail = markdown[:PARSED_CHARS], markdown[PARSED_CHARS:]
    environment: dict[str, Any] = {}
    tokens = _parser().parse(head, environment)
    if any(token.level >= _NESTING - 1 for token in tokens):
        return _plain(markdown)
    blocks = tuple(_Reader(tokens).blocks())
    blocks += tuple(_unused_references(environment.get("references", {}), blocks)) + _plain(tail)
    return blocks or _plain(markdown)


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


def _plain(text: str) -> tuple[Block, ...]:
    return tuple(Paragraph(text=part) for part in re.split(r"\n\s*\n", text.strip()) if part)


def _unused_references(references: Mapping[str, Mapping[str, str]], blocks: Sequence[Block]) -> Iterator[Block]:
    """Lists of sources at the end of an answer are link definitions to Markdown, and would vanish unless something links to them."""
    used = {span.url for block in blocks if isinstance(block, Paragraph) for span in block.spans}
    for label, reference in references.items():
        if reference["href"] not in used:
            yield Paragraph(text=f"[{label}]: {reference['href']}", tight=True)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "maxNesting": _NESTING}).enable(["table", "strikethrough"])


@dataclass(slots=True)
class _Reader:
    """Walks the parser's tokens once, remembering how deep in quotes and lists it stands."""

    tokens: Sequence[Token]
    at: int = 0
    quote: int = 0
    lists: list[int | None] = field(
        default_factory=list[int | None]
    )  # the next number; None where there are only bullets
    marker: str = ""
    list_begins: bool = False

    def blocks(self) -> Iterator[Block]:
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            block = self._block(token)
            if block is not None:
                yield block

    def _block(self, token: Token) -> Block | None:
        match token.type:
            case "inline":
                return self._prose(token)
            case "fence" | "code_block":
                language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
                return Fence(code=token.content.removesuffix("\n"), language=language, **self._place())
            case "hr":
                return Rule(**self._place())
            case "table_open":
                return self._table()
            case _:
                self._move(token)
                return None

    def _move(self, token: Token) -> None:
        match token.type:
            case "blockquote_open" | "blockquote_close":
                self.quote += token.nesting
            case "bullet_list_open" | "ordered_list_open":
                self.list_begins = not self.lists
                self.lists.append(int(token.attrs.get("start", 1)) if token.type[0] == "o" else None)
            case "list_item_open":
                self.marker = self._next_marker()
            case "list_item_close":
                self.marker = ""
            case "bullet_list_close" | "ordered_list_close":
                self.lists.pop()
            case _:
                pass

    def _next_marker(self) -> str:
        number = self.lists[-1]
        if number is None:
            return "•"
        self.lists[-1] = number + 1
        return f"{number}."

    def _place(self, *, tight: bool = False) -> dict[str, Any]:
        place = {
            "quote": self.quote,
            "indent": len(self.lists),
            "marker": self.marker,
            "tight": tight and not self.list_begins,
        }
        self.marker, self.list_begins = "", False
        return place

    def _prose(self, token: Token) -> Block | None:
        opening = self.tokens[self.at - 2]
        text, spans = _inline(token.children or ())
        if not text.strip():
            return None
        if opening.type == "heading_open":
            return Heading(text=text, spans=spans, level=int(opening.tag[1]), **self._place())
        return Paragraph(text=text, spans=spans, **self._place(tight=opening.hidden))

    def _table(self) -> Block:
        rows: list[list[str]] = []
        while (token := self.tokens[self.at]).type != "table_close":
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                rows[-1].append(_inline(token.children or ())[0].replace("\n", " "))
            self.at += 1
        self.at += 1
        header, *body = (tuple(row) for row in rows)
        return Table(header=header, rows=tuple(body), **self._place())


_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}


def _inline(tokens: Sequence[Token]) -> tuple[str, tuple[Span, ...]]:
    line = _Line()
    for token in tokens:
        line.take(token)
    return "".join(line.text), tuple(sorted((s for s in line.spans if s.start < s.end), key=_outer_first))


def _outer_first(span: Span) -> tuple[int, int, bool]:
    return span.start, -span.end, span.style is not Style.LINK


@dataclass(slots=True)
class _Line:
    """Text and spans of one block, while they are being read."""

    text: list[str] = field(default_factory=list[str])
    length: int = 0
    spans: list[Span] = field(default_factory=list[Span])
    opened: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    def take(self, token: Token) -> None:
        kind, _, edge = token.type.rpartition("_")
        match kind, edge:
            case "strong" | "em" | "s" | "link", "open":
                self.opened.append((self.length, str(token.attrs.get("href", ""))))
            case "strong" | "em" | "s", "close":
                self.spans.append(Span(self.opened.pop()[0], self.length, _STYLES[kind]))
            case "link", "close":
                self._link(*self.opened.pop())
            case "code", "inline":
                self._write(token.content)
                self.spans.append(Span(self.length - len(token.content), self.length, Style.CODE))
            case "", "image":
                source, start = str(token.attrs.get("src", "")), self.length
                self._write(token.content or source)
                self._link(start, source)
            case "", "softbreak" | "hardbreak":
                self._write("\n")
            case _:
                self._write(token.content)

    def _write(self, part: str) -> None:
        self.text.append(part)
        self.length += len(part)

    def _link(self, start: int, url: str) -> None:
        """A target that no chat could open is shown behind the text."""
        if _LINKABLE.match(url):
            self.spans.append(Span(start, self.length, Style.LINK, url))
        elif url and [url] != self.text[-1:]:
            self._write(f" ({url})")


def cut_spans(spans: Sequence[Span], start: int, end: int) -> tuple[Span, ...]:
    """The spans as they stand in `text[start:end]`."""
    inside = (Span(max(s.start, start) - start, min(s.end, end) - start, s.style, s.url) for s in spans)
    return tuple(span for span in inside if span.start < span.end)
