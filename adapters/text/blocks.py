"""The neutral blocks of a text, from which every platform renders its own.

They are a flat list: a nested list or quote shows up as `indent` and `quote` of its blocks. So a splitter never has to cut a tree.
"""

from dataclasses import dataclass

from adapters.text.spans import Span


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
