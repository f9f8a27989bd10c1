"""What the parser makes of a text: always right, and slow."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from adapters.text import inline
from adapters.text.blocks import Block, Fence, Heading, Paragraph, Rule, Table
from adapters.text.spans import Line, Span, Style

_NESTING = 20  # the parser drops the inside of what is nested deeper, so such text is not parsed at all


class TooDeepError(Exception):
    """Quotes and lists are nested deeper than the parser goes."""


class Document:
    """A text with the definitions of links that were found in it so far."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
        self._environment: dict[str, Any] = {}

    @property
    def definitions(self) -> Mapping[str, Mapping[str, str]]:
        return self._environment.get("references", {})

    def whole(self) -> Iterator[Block]:
        return self.blocks(_flat(_parser().parse(self.text, self._environment)))

    def block(self, at: int) -> tuple[list[Token], int]:
        """The block at the beginning of this line, which is outside of any other, and where it ends."""
        state = self._state
        state.line = line = bisect_left(state.bMarks, at)
        tokens: list[Token] = []
        state.tokens = tokens
        for rule in _parser().block.ruler.getRules(""):
            if rule(state, line, state.lineMax, False):
                break
        return _flat(tokens), state.bMarks[state.line]

    @cached_property
    def _state(self) -> StateBlock:
        return StateBlock(self.text, _parser(), self._environment, [])

    def blocks(self, tokens: Sequence[Token]) -> Iterator[Block]:
        return _Reader(tokens, self).blocks()

    def inline(self, content: str) -> tuple[str, tuple[Span, ...]]:
        """What is marked inside of a block. Only now all definitions have to be known."""
        parser = _parser()
        found = None if self.definitions and "[" in content else inline.read(content, parser)
        return found or thorough(parser.inline.parse(content, parser, self._environment, []))


def _flat(tokens: list[Token]) -> list[Token]:
    if any(token.level >= _NESTING - 1 for token in tokens):
        raise TooDeepError
    return tokens


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
    document: Document
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
        text, spans = self.document.inline(token.content)
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
                rows[-1].append(self.document.inline(token.content)[0].replace("\n", " "))
            self.at += 1
        self.at += 1
        header, *body = (tuple(row) for row in rows)
        return Table(header=header, rows=tuple(body), **self._place())


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
