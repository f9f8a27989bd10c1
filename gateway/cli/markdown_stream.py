"""Markdown that is still being written, cut into blocks that can be shown as soon as they are whole."""

import re

_FENCE = re.compile(r"( *)(`{3,}(?=[^`]*$)|~{3,})")
_CLOSED = re.compile(r"`[^`\n]+`|\*\*(?=\S)[^*\n]*[^*\s]\*\*")
_PLAIN = re.compile(r"[^\W\d][^\n*_`\[\]<>|~\\&!]*")


class Blocks:
    """Cuts Markdown into blocks. `feed` takes what arrives and returns whole blocks: one ends at a blank line outside of a code fence,
    and where such a fence begins or ends.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""  # the last one, which has no line break yet
        self._fence = ""  # what the open fence begins with

    def feed(self, text: str) -> list[str]:
        *lines, self._line = f"{self._line}{text}".split("\n")
        return [block for line in lines for block in self._take(line)]

    def _take(self, line: str) -> list[str]:
        if self._fence:
            return self._take_code(line)
        opened = _FENCE.match(line)
        if opened is None and not line.strip():
            return self._cut()
        before = self._cut() if opened is not None and not opened[1] else []  # an indented one may belong to a list
        self._fence = opened[2] if opened is not None else ""
        self._lines.append(line)
        return before

    def _take_code(self, line: str) -> list[str]:
        self._lines.append(line)
        mark = line.strip()
        if len(mark) < len(self._fence) or mark.strip(self._fence[0]):
            return []
        self._fence = ""
        return self._cut() if _FENCE.match(self._lines[0]) else []

    def _cut(self) -> list[str]:
        block, self._lines = self._without_indent(self._lines), []
        return [block] if block.strip() else []

    @staticmethod
    def _without_indent(lines: list[str]) -> str:
        """Removes the indent of code that belongs to a list above it, so that it can be copied."""
        opened = _FENCE.match(lines[0]) if lines else None
        indent = opened[1] if opened is not None else ""
        return "\n".join(line.removeprefix(indent) for line in lines)

    @property
    def unfinished(self) -> str:
        """Returns the next block, as far as it has come."""
        return self._without_indent([*self._lines, self._line])

    @property
    def is_append_only(self) -> bool:
        """Returns whether nothing that follows can change the lines of `unfinished`, the last one excepted."""
        if self._fence:
            return _FENCE.match(self._lines[0]) is not None
        return _PLAIN.fullmatch(_CLOSED.sub("x", self.unfinished)) is not None

    def rest(self) -> str:
        rest = self.unfinished.strip("\n")
        self.clear()
        return rest

    def clear(self) -> None:
        self._lines, self._line, self._fence = [], "", ""
