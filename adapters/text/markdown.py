"""One parse of Markdown into neutral blocks, from which every platform renders its own text.

The blocks are a flat list: a nested list or quote shows up as `indent` and `quote` of its blocks. So a splitter never has to cut a
tree. Plain text that means nothing in Markdown comes through as it is; nothing a model writes is dropped.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from adapters.text import inline
from adapters.text.spans import Line, Span, Style

PARSED_CHARS = 30_000  # what follows is plain text: nobody reads it formatted, and parsing time stays bounded
_NESTING = 20  # the parser drops the inside of what is nested deeper, so such text is not parsed at all


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
    blocks = tuple(_Reader(tokens, environment).blocks())
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
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _NESTING}).enable(["table", "strikethrough"])
    parser.core.ruler.enableOnly(["normalize", "block"])  # what is inside of blocks is read one by one
    parser.disable(["html_block", "html_inline"])
    return parser


@dataclass(slots=True)
class _Reader:
    """Walks the parser's tokens once, remembering how deep in quotes and lists it stands."""

    tokens: Sequence[Token]
    environment: dict[str, Any]
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
        text, spans = self._inline(token.content)
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
                rows[-1].append(self._inline(token.content)[0].replace("\n", " "))
            self.at += 1
        self.at += 1
        header, *body = (tuple(row) for row in rows)
        return Table(header=header, rows=tuple(body), **self._place())

    def _inline(self, content: str) -> tuple[str, tuple[Span, ...]]:
        parser = _parser()
        found = None if self.environment.get("references") else inline.read(content, parser)
        return found or thorough(parser.inline.parse(content, parser, self.environment, []))


_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}


def thorough(tokens: Sequence[Token]) -> tuple[str, tuple[Span, ...]]:
    """What the parser has found inside a block."""
    line = Line()
    opened: list[tuple[int, str]] = []
    for token in tokens:
        _take(token, line, opened)
    return line.read()


def _take(token: Token, line: Line, opened: list[tuple[int, str]]) -> None:
    kind, _, edge = token.type.rpartition("_")
    match kind, edge:
        case "strong" | "em" | "s" | "link", "open":
            opened.append((line.length, str(token.attrs.get("href", ""))))
        case "strong" | "em" | "s", "close":
            line.mark(_STYLES[kind], opened.pop()[0])
        case "link", "close":
            line.link(*opened.pop())
        case "code", "inline":
            start = line.length
            line.write(token.content)
            line.mark(Style.CODE, start)
        case "", "image":
            source, start = str(token.attrs.get("src", "")), line.length
            line.write(token.content or source)
            line.link(start, source)
        case "", "softbreak" | "hardbreak":
            line.write("\n")
        case _:
            line.write(token.content)
