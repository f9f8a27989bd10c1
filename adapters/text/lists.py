"""Lists with all that is nested in them, read line by line."""

import re
from dataclasses import dataclass
from typing import Any

from adapters.text.blocks import Block
from adapters.text.leaves import SPECIAL, DoubtfulError, Prose, fence, prose

_LINE = re.compile(
    rf"""
    (?P<indent>[ ]*+)
    (?: (?P<blank>[ \t]*+\n)
      | (?P<fence>(?P<ticks>`{{3,}}+|~{{3,}}+)(?P<info>[^`|\n]*+)\n)
      | (?P<item>(?P<marker>(?:(?P<number>[0-9]{{1,9}})[.)]|[-+*])[ ]{{1,4}}+)(?!{SPECIAL})(?P<begun>\S[^\n]*+)\n)
      | (?P<text>(?!{SPECIAL})\S[^\n]*+)\n
    )
    """,
    re.VERBOSE | re.MULTILINE,
)
_NEXT = re.compile(r"#{1,6} |>|(?:-{3,}|\*{3,}|_{3,})[ \t]*$", re.MULTILINE)
"""What ends every list, in whatever it stands."""


@dataclass(slots=True)
class _List:
    sign: str
    number: int | None
    inner: int = 0
    """The column where the content of its last item begins."""
    loose: bool = False


class Lists:
    """One list with all that is nested in it."""

    def __init__(self, text: str, quote: int) -> None:
        self.text = text
        self.quote = quote
        self.found: list[Prose | Block] = []
        self.opened: list[_List] = []
        self.paragraph: list[str] = []  # the one that the next line may go on with
        self.paragraphs: list[tuple[dict[str, Any], _List]] = []  # all of them: where each belongs
        self.blank = False  # was the line before

    def read(self, at: int) -> int:
        """From this line on. Where it ends."""
        while at < len(self.text) and (end := self._line(at)) is not None:
            at = end
        self._close()
        for fields, inside in self.paragraphs[1:]:
            fields["tight"] = not inside.loose
        return at

    def _line(self, at: int) -> int | None:
        """Where the next line begins. None: this one is not in the list any more."""
        line = _LINE.match(self.text, at)
        if line is None:
            if not _NEXT.match(self.text, at) or (self.text[at] == "-" and not self.blank):
                raise DoubtfulError
            return None
        indent, kind = line.end("indent") - at, line.lastgroup
        if kind == "blank":
            self._close()
            self.blank = True
            return line.end()
        if kind == "text" and self.paragraph:
            self.paragraph.append(line[0][min(indent, self.opened[-1].inner) : -1])
            return line.end()
        goes_on = self._item(line, indent) if kind == "item" else self._inside(indent)
        if not goes_on:
            return None
        end = self._begin(line, indent)
        self.blank = False
        return end

    def _item(self, line: re.Match[str], indent: int) -> bool:
        """Moves to the list of this item."""
        sign, number = line["marker"].rstrip()[-1], int(line["number"]) if line["number"] else None
        ended = self._leave(indent)
        if ended is None:
            if self.paragraph and number not in {None, 1}:
                raise DoubtfulError
            self._loosen()
            self.opened.append(_List(sign, number))
        elif ended.sign == sign:
            self.opened.append(ended)
            ended.number = None if ended.number is None else ended.number + 1
            self._loosen()
        elif self.opened:
            raise DoubtfulError
        else:
            return False
        self.opened[-1].inner = indent + len(line["marker"])
        return True

    def _inside(self, indent: int) -> bool:
        """Moves to the item in which this line stands."""
        self._leave(indent)
        self._loosen()
        return bool(self.opened)

    def _leave(self, indent: int) -> _List | None:
        """The outermost of the lists that end here."""
        ended = None
        while self.opened and indent < self.opened[-1].inner:
            ended = self.opened.pop()
        if indent - (self.opened[-1].inner if self.opened else 0) > 3:
            raise DoubtfulError
        return ended

    def _loosen(self) -> None:
        if self.blank and self.opened:
            self.opened[-1].loose = True

    def _begin(self, line: re.Match[str], indent: int) -> int:
        """A block, as its first line says; where the line ends, or the block that is read as a whole."""
        self._close()
        here = self.opened[-1]
        fields: dict[str, Any] = {"quote": self.quote, "indent": len(self.opened)}
        if line.lastgroup == "fence":
            code, end = fence(line, indent, here.inner, fields)
            self.found.append(code)
            return end
        if line.lastgroup == "item":
            fields["marker"] = "•" if here.number is None else f"{here.number}."
        self.paragraph = [line["begun"] or line["text"]]
        self.paragraphs.append((fields, here))
        return line.end()

    def _close(self) -> None:
        if self.paragraph:
            self.found.append(prose("\n".join(self.paragraph), self.paragraphs[-1][0]))
            self.paragraph = []
