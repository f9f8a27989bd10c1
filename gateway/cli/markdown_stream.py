"""Markdown that is still being written, cut into blocks that can be shown as soon as they are whole."""

import re

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)", re.MULTILINE)
_CLOSED = re.compile(r"`[^`\n]+`|\*\*(?=\S)[^*\n]*[^*\s]\*\*")
_PLAIN = re.compile(r"[^\W\d][^\n*_`\[\]<>|~\\&!]*")


class Blocks:
    """`feed` what arrives, get what is whole: a block ends at a blank line outside of a fence."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> list[str]:
        self._text += text
        whole: list[str] = []
        at = 0
        while (end := self._text.find("\n\n", at)) >= 0:
            block = self._text[:end]
            if len(_FENCE.findall(block)) % 2:
                at = end + 2
                continue
            whole.append(block)
            self._text = self._text[end:].lstrip("\n")
            at = 0
        return [block for block in whole if block.strip()]

    @property
    def paragraph(self) -> str:
        """What has grown of the next block, if nothing that follows can change how it is set."""
        return self._text if _PLAIN.fullmatch(_CLOSED.sub("x", self._text)) else ""

    def rest(self) -> str:
        rest, self._text = self._text.strip("\n"), ""
        return rest

    def clear(self) -> None:
        self._text = ""
