"""Cuts neutral blocks into pieces that fit a platform's limits: between blocks where possible, inside one where necessary."""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from adapters.text.blocks import Block, Fence, Heading, Paragraph, Span, Style, Table, cut_spans, plain_text

PIECES_AT_MOST = 5
SMALLEST_LIMIT = 16
_PRECISION = 128
"""A piece that could be longer by less than this part of it is long enough."""


def utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


@dataclass(frozen=True, slots=True)
class Size:
    """What a platform counts: `units` of text, and `marks` (its formatting entities, where they are limited)."""

    units: int
    marks: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(self.units + other.units, self.marks + other.marks)

    def __sub__(self, other: "Size") -> "Size":
        return Size(self.units - other.units, self.marks - other.marks)

    def times(self, count: int) -> "Size":
        return Size(self.units * count, self.marks * count)

    def holds(self, other: "Size") -> bool:
        return other.units <= self.units and other.marks <= self.marks


Measure = Callable[[Block], Size]
"""What this block adds to a rendered piece at most, the gap before it included. Never shrinks when text is added to the block."""

Pieces = list[tuple[Block, ...]]


def split_or_file(blocks: Sequence[Block], limit: Size, measure: Measure) -> tuple[Pieces, bool]:
    """Returns the pieces to send. True: there would be more than five, so they are only the first one, and the whole text goes as a file."""
    # An estimate first: a text that is far too long is not cut into all its pieces only to count them.
    far_more = limit.times(PIECES_AT_MOST + 1)
    at_most = PIECES_AT_MOST + 1 if far_more.holds(_sum(blocks, measure)) else 1
    pieces = list(islice(split(blocks, limit, measure), at_most))
    if at_most == 1:
        return pieces, True
    return (pieces[:1], True) if len(pieces) > PIECES_AT_MOST else (pieces, False)


def split(blocks: Sequence[Block], limit: Size, measure: Measure) -> Iterator[tuple[Block, ...]]:
    """Yields pieces one by one. Each takes text from the rest, so that it always ends."""
    if limit.units < SMALLEST_LIMIT:
        raise ValueError(f"text cannot be cut into pieces of {limit.units}: at least {SMALLEST_LIMIT} are needed")
    waiting = deque(_groups(blocks))
    piece: list[Block] = []
    room = limit
    while waiting:
        group = waiting.popleft()
        size = _sum(group, measure)
        if room.holds(size):
            piece += group
            room -= size
        elif len(group) > 1 and not limit.holds(size):
            waiting.extendleft([block] for block in reversed(group))
        else:
            # A block is cut only where a good part of the piece is still free; else it begins the next piece.
            worth_a_cut = not piece or room.units >= limit.units // 4
            parts = _cut(group[0], room, measure, whole=not piece) if worth_a_cut and not limit.holds(size) else ()
            if parts:
                waiting.extendleft([rest] for rest in parts[1:])
            else:
                waiting.appendleft(group)
            yield (*piece, *parts[:1])
            piece, room = [], limit
    if piece:
        yield tuple(piece)


def _sum(blocks: Sequence[Block], measure: Measure) -> Size:
    if len(blocks) == 1:
        return measure(blocks[0])
    sizes = [measure(block) for block in blocks]
    return Size(sum([size.units for size in sizes]), sum([size.marks for size in sizes]))


def _groups(blocks: Sequence[Block]) -> list[list[Block]]:
    """Returns groups of blocks that should stay together: a list, or a heading and what follows it."""
    groups: list[list[Block]] = []
    last: Block | None = None
    for block in blocks:
        if last is not None and (isinstance(last, Heading) or (last.indent and block.indent)):
            groups[-1].append(block)
        else:
            groups.append([block])
        last = block
    return groups


def _cut(block: Block, room: Size, measure: Measure, *, whole: bool) -> tuple[Block, ...]:
    """Returns the part that fits and the rest; an empty part when nothing sensible fits. `whole`: there will never be more room, so it is
    cut anyhow.
    """
    match block:
        case Table():
            parts = _cut_table(block, room, measure)
        case Fence():
            parts = _cut_text(block, block.code, _longest(block, block.code, room, measure), _line_break)
        case Paragraph():
            most = _longest(block, block.text, room, measure)
            parts = _cut_text(
                block, block.text, most, lambda text, most: _prose_break(text, most, block.spans, anyhow=whole)
            )
        case _:
            parts = ()
    if parts or not whole:
        return parts
    return _cut_bare(block, room, measure)


def _cut_bare(block: Block, room: Size, measure: Measure) -> tuple[Block, ...]:
    """Cuts a block whose marker, indent or table row already takes all the room: its text goes on without them."""
    text = f"{block.marker} {plain_text(block)}".strip()
    bare = Paragraph(text=text, continued=block.continued)
    if room.holds(measure(bare)):
        return (bare,)
    return _cut_text(bare, text, max(1, _longest(bare, text, room, measure)), _between_graphemes)


def _cut_table(table: Table, room: Size, measure: Measure) -> tuple[Block, ...]:
    def head(count: int) -> Table:
        return replace(table, rows=table.rows[:count])

    count = _most(len(table.rows) - 1, lambda count: room.holds(measure(head(count))))
    if count < 1:
        return ()
    return head(count), replace(table, rows=table.rows[count:], marker="", continued=True)


def _longest(block: Block, text: str, room: Size, measure: Measure) -> int:
    highest = min(len(text), room.units)
    return _most(highest, lambda most: room.holds(measure(_part(block, text, 0, most))), highest // _PRECISION)


def _most(highest: int, fits: Callable[[int], bool], inexact: int = 0) -> int:
    """Returns about the highest number that fits, 0 when none does."""
    low, high = 0, max(highest, 0)
    while low < high - (inexact if low else 0):
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _part(block: Block, text: str, start: int, end: int) -> Block:
    later: dict[str, Any] = {"marker": "", "tight": False, "continued": True} if start else {}
    match block:
        case Fence():
            return replace(block, code=text[start:end], **later)
        case Paragraph():
            return replace(block, text=text[start:end], spans=cut_spans(block.spans, start, end), **later)
        case _:
            raise TypeError(f"{type(block).__name__} has no text to cut")


def _cut_text(block: Block, text: str, most: int, breaks: Callable[[str, int], int]) -> tuple[Block, ...]:
    at = breaks(text, most) if most else 0
    if not at:
        return ()
    start = at
    if isinstance(block, Paragraph):
        start = len(text) - len(text[at:].lstrip())
    elif text[at : at + 1] == "\n":
        start = at + 1
    rest = (_part(block, text, start, len(text)),) if start < len(text) else ()
    return _part(block, text, 0, at), *rest


def _line_break(text: str, most: int) -> int:
    """Returns where a line of code ends, or, in a line longer than a piece, a position between two characters."""
    at = text.rfind("\n", 1, most + 1)
    return at if at > 0 else _between_graphemes(text, most)


_SENTENCE_END = re.compile(r"[.!?…:;。！？](?=\s)")


def _prose_break(text: str, most: int, spans: Sequence[Span], *, anyhow: bool) -> int:
    """Returns a position after a line, a sentence or a word; inside a link or code only if that alone is too long."""
    at = text.rfind("\n", most // 2, most + 1)
    if at < 1:
        at = max(
            (match.end() for match in _SENTENCE_END.finditer(text, most // 2, most + 1) if match.end() <= most),
            default=-1,
        )
    if at < 1:
        at = text.rfind(" ", 1, most + 1)
    if at < 1:
        at = _between_graphemes(text, most)
    around = next((s for s in spans if s.style in {Style.LINK, Style.CODE} and s.start < at < s.end), None)
    if around is None:
        return at
    return around.start or (at if anyhow else 0)


_LONGEST_GRAPHEME = 32
_JOINERS = "\u200d\ufe0e\ufe0f"


def _between_graphemes(text: str, most: int) -> int:
    """Returns the last position up to `most` that does not split an accent, a flag or a joined emoji."""
    for at in range(most, max(0, most - _LONGEST_GRAPHEME), -1):
        if at == len(text) or not _belongs(text[at - 1], text[at]):
            return at
    return most


def _belongs(before: str, after: str) -> bool:
    if after.isascii() and before.isascii():
        return False
    return (
        after in _JOINERS
        or before == "\u200d"
        or unicodedata.category(after) in {"Mn", "Mc", "Me"}
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or all("\U0001f1e6" <= letter <= "\U0001f1ff" for letter in (before, after))  # the two halves of a flag
    )
