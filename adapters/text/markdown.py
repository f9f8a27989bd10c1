"""Parses Markdown once into neutral blocks.

Plain text that means nothing in Markdown comes through as it is; nothing that a model writes is dropped.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from adapters.text.blocks import Block, Fence, Heading, Paragraph, Rule, Span, SpanBuilder, Style, Table

PARSED_CHARS = 30_000  # what follows is plain text: nobody reads it formatted, and parsing time stays bounded
_NESTING = 20  # the parser drops the inside of what is nested deeper, so such text is not parsed at all
_STYLES = {"strong": Style.BOLD, "em": Style.ITALIC, "s": Style.STRIKE}


def parse(markdown: str) -> tuple[Block, ...]:
    """Returns the blocks of a text. Takes some milliseconds for a long answer: call it in a thread."""
    head, tail = markdown[:PARSED_CHARS], markdown[PARSED_CHARS:]
    environment: dict[str, Any] = {}
    tokens = _parser().parse(head, environment)
    # At its limit the parser leaves out what is nested deeper, without a word.
    if any(token.level >= _NESTING - 1 for token in tokens):
        return _plain(markdown)
    blocks = list(_TokenReader(tokens).blocks())
    definitions: Mapping[str, Mapping[str, str]] = environment.get("references", {})
    return (*blocks, *_unused(definitions, blocks), *_plain(tail)) or _plain(markdown)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _NESTING}).enable(["table", "strikethrough"])
    return parser.disable(["html_block", "html_inline"])


def _plain(text: str) -> tuple[Block, ...]:
    return tuple(Paragraph(text=part) for part in re.split(r"\n\s*\n", text.strip()) if part)


def _unused(definitions: Mapping[str, Mapping[str, str]], blocks: Sequence[Block]) -> Iterator[Block]:
    """Returns link definitions that no link uses: lists of sources at the end of an answer, which Markdown would drop."""
    used = {span.url for block in blocks if isinstance(block, Paragraph) for span in block.spans}
    for label, definition in definitions.items():
        if definition["href"] not in used:
            yield Paragraph(text=f"[{label}]: {definition['href']}", tight=True)


@dataclass(slots=True)
class _TokenReader:
    """Walks the parser's tokens once, remembering how deep in quotes and lists it stands."""

    tokens: Sequence[Token]
    at: int = 0
    quote: int = 0
    # For each open list its next number; None where it has bullets.
    lists: list[int | None] = field(default_factory=list[int | None])
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
                opening = self.tokens[self.at - 2]
                text, spans = _inline(token.children or ())
                if not text.strip():
                    return None
                if opening.type == "heading_open":
                    return Heading(text=text, spans=spans, level=int(opening.tag[1]), **self._place())
                return Paragraph(text=text, spans=spans, **self._place(tight=opening.hidden))
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
                self.marker = self._next_marker(token.info)
            case "list_item_close":
                self.marker = ""
            case "bullet_list_close" | "ordered_list_close":
                self.lists.pop()
            case _:
                pass

    def _next_marker(self, written: str) -> str:
        """Returns a bullet, or the number as it was written: people refer to it. Where all items say 1, they are counted."""
        number = self.lists[-1]
        if number is None:
            return "•"
        number = max(number, int(written))
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


def _inline(tokens: Sequence[Token]) -> tuple[str, tuple[Span, ...]]:
    """Returns the text inside of a block, and its spans."""
    line = SpanBuilder()
    opened: list[tuple[int, str]] = []
    for token in tokens:
        _take(token, line, opened)
    return line.read()


def _take(token: Token, line: SpanBuilder, opened: list[tuple[int, str]]) -> None:
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
