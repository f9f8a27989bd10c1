"""Renders neutral blocks as lines of text with marks in them, for platforms whose formatting stands in the text itself.

Where a platform has no tables, one is a grid if it is narrow enough for a phone, else one record below the other.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adapters.text.blocks import Block, Fence, Heading, Paragraph, Rule, Span, Style, Table
from adapters.text.split import Size, utf16_length

_GAP = 3
"""The longest that stands between two blocks: an empty line, in a quote with its mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """How a platform writes formatting. `marks`: what stands before and behind marked words. `escape`: plain text, so that nothing
    in it is taken for a mark. `link`: words and address. `headings`: the mark before a heading of level 1, 2 …; without them headings
    are bold. `tells_language`: the language of code stands behind its fence. `indent`: spaces for each level of a list."""

    marks: Mapping[Style, tuple[str, str]]
    escape: Callable[[str], str]
    link: Callable[[str, str], str]
    headings: tuple[str, ...] = ()
    tells_language: bool = True
    indent: int = 2
    rule: str = "———"
    bullet: str = "-"
    tables: Callable[[Table], str] | None = None


class LineLayout:
    """Renders each block once, however often it is measured. `length` is what the platform counts."""

    def __init__(self, notation: Notation, length: Callable[[str], int] = utf16_length) -> None:
        self._notation = notation
        self._length = length
        self._known: dict[
            int, tuple[Block, str, Size]
        ] = {}  # by id(); the block is kept beside, or its id could go to another one

    def _rendered(self, block: Block) -> tuple[Block, str, Size]:
        found = self._known.get(id(block))
        if found is None:
            text = render_block(block, self._notation)
            found = self._known[id(block)] = (block, text, Size(self._length(text) + _GAP))
        return found

    def measure(self, block: Block) -> Size:
        return self._rendered(block)[2]

    def compose(self, blocks: Sequence[Block]) -> str:
        parts: list[str] = []
        before: Block | None = None
        for block in blocks:
            if before is not None:
                quoted = ">" if before.quote and block.quote else ""
                parts.append("\n" if block.tight else f"\n{quoted}\n")
            parts.append(self._rendered(block)[1])
            before = block
        return "".join(parts)


def render_block(block: Block, notation: Notation) -> str:
    """Renders one block with its marker, its indent and the marks of its quote."""
    text = _body(block, notation)
    if block.indent:
        marker = notation.bullet if block.marker == "•" else block.marker
        outer = " " * (notation.indent * max(0, block.indent - 1))
        first = f"{outer}{marker} " if marker else outer + " " * notation.indent
        rest = outer + " " * notation.indent
        text = first + f"\n{rest}".join(text.split("\n"))
    if block.quote:
        text = "\n".join(f"> {line}" for line in text.split("\n"))
    return text


def _body(block: Block, notation: Notation) -> str:
    match block:
        case Heading():
            words = " ".join(block.text.split("\n"))
            if notation.headings:
                mark = notation.headings[min(block.level, len(notation.headings)) - 1]
                return f"{mark} {inline(words, block.spans, notation)}"
            inner = tuple(span for span in block.spans if span.style is not Style.BOLD)
            return inline(words, (Span(0, len(words), Style.BOLD), *inner), notation)
        case Paragraph(text=text, spans=spans):
            return inline(text, spans, notation)
        case Fence(code=code, language=language):
            return _fence(code, language if notation.tells_language else "")
        case Table() if notation.tables is not None:
            return notation.tables(block)
        case Table():
            grid = as_grid(block)
            return notation.escape(as_records(block)) if grid is None else _fence(grid, "")
        case Rule():
            return notation.rule
        case _:
            return ""


def _fence(code: str, language: str) -> str:
    """A fence inside the code would end it; a space with no width between its ticks keeps it whole."""
    kept = code.replace("```", "``\u200b`")
    return f"```{language}\n{kept}\n```"


def inline(text: str, spans: Sequence[Span], notation: Notation) -> str:
    """Returns the text with the marks of its spans, which nest."""
    if not spans:
        return notation.escape(text)
    written, at = _within(text, list(spans), 0, len(text), notation)
    return written + notation.escape(text[at:])


def _within(text: str, spans: list[Span], start: int, end: int, notation: Notation) -> tuple[str, int]:
    """Returns the text from `start` on with the `spans` that begin before `end`, and where it ends. Removes these spans from the list."""
    parts: list[str] = []
    at = start
    while spans and spans[0].start < end:
        span = spans.pop(0)
        if span.start < at:
            continue
        parts.append(notation.escape(text[at : span.start]))
        parts.append(_marked(text, span, spans, notation))
        at = span.end
    return "".join(parts), at


def _marked(text: str, span: Span, spans: list[Span], notation: Notation) -> str:
    if span.style is Style.CODE:
        while spans and spans[0].start < span.end:
            spans.pop(0)
        return _code(text[span.start : span.end], notation)
    inner, at = _within(text, spans, span.start, span.end, notation)
    inner += notation.escape(text[at : span.end])
    if span.style is Style.LINK:
        return notation.link(inner, span.url)
    opening, closing = notation.marks[span.style]
    return "\n".join(_hugged(line, opening, closing) for line in inner.split("\n"))


def _hugged(line: str, opening: str, closing: str) -> str:
    """Moves blanks out of a marked text, because a mark counts only where it touches a word."""
    words = line.strip()
    if not words:
        return line
    before, after = line[: len(line) - len(line.lstrip())], line[len(line.rstrip()) :]
    return f"{before}{opening}{words}{closing}{after}"


def _code(code: str, notation: Notation) -> str:
    opening, closing = notation.marks[Style.CODE]
    if "`" in code:
        return f"{opening * 2} {code} {closing * 2}" if notation.tells_language else notation.escape(code)
    return "\n".join(f"{opening}{line}{closing}" if line.strip() else line for line in code.split("\n"))


_SIGNS = re.compile(r"[\\`*~\[\]|<]|(?<![^\W_])_|_(?![^\W_])")
_AT_LINE_START = re.compile(r"^([ \t]*)(#{1,6}|[-+]|=+|-{2,})(?=[ \t\n]|$)", re.MULTILINE)
_QUOTE_AT_LINE_START = re.compile(r"^([ \t]*)>", re.MULTILINE)
_NUMBER_AT_LINE_START = re.compile(r"^([ \t]*\d{1,9})([.)])(?=[ \t\n]|$)", re.MULTILINE)


def escape_markdown(text: str) -> str:
    """Returns plain text as Markdown, so that nothing in it is taken for formatting."""
    if text.isalnum():
        return text
    text = _SIGNS.sub(lambda found: f"\\{found[0]}", text)
    text = _AT_LINE_START.sub(r"\1\\\2", text)
    text = _QUOTE_AT_LINE_START.sub(r"\1\\>", text)
    return _NUMBER_AT_LINE_START.sub(r"\1\\\2", text)


GRID_COLUMNS = 44
"""A wider table wraps on a phone."""


def as_grid(table: Table) -> str | None:
    """Returns the rows with their columns aligned, for a font of equal widths. None: too wide."""
    rows = table.rows if table.continued else (table.header, *table.rows)
    # Measured with the header also where this is the rest of a table that was cut: its columns stay as wide as before.
    widths = [max(len(row[column]) for row in (table.header, *table.rows)) for column in range(len(table.header))]
    if sum(widths) + 2 * len(widths) > GRID_COLUMNS:
        return None
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def as_records(table: Table) -> str:
    """Returns every row as lines `column: cell`, with an empty line between two rows."""
    return "\n\n".join(
        "\n".join(f"{name}: {cell}" for name, cell in zip(table.header, row, strict=True) if cell) for row in table.rows
    )
