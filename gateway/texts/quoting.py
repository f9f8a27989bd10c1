"""Makes other people's words tell whose they are: quotes them as Markdown does, and marks what looks like a speaker's name."""

import re
import unicodedata

BLANK_LETTERS = "\u115f\u1160\u2800\u3164\uffa0\U0001d159"
"""Letters and signs that look like nothing."""
_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_LINE = re.compile(f"^|[{_BREAKS}]")
_INVISIBLE = {"Cc", "Cf", "Me", "Mn", "Zl", "Zp", "Zs"}
"""Categories of characters that take no ink, or none of their own."""
_NAMED = re.compile(
    r"(?!\[\d{1,3}\]\s*\n)[\[［]+[^\S\n]*[^\s\[\]［］](?:"
    r"[^\[\]［］\n]{0,99}[\]］]+(?:[:：–—\w]|\s+\S)"
    r"|(?<=[^\W\d_])[^\[\]［］\n\"']{0,99}[\]］]+[^\s(\[])"
)
"""`[name]` with words behind it, in its own line or in the next, or with a comma and the like if it begins with a letter. A small number
alone in a line is an index in code."""


def as_quoted(text: str) -> str:
    """Puts `> ` before every line."""
    return "\n".join(f"> {line}" for line in text.splitlines())


def escape_speaker_marks(text: str) -> str:
    """Marks lines that look like `[name] `. In groups such a prefix says who speaks."""
    if "[" not in text and "［" not in text:
        return text
    pieces: list[str] = []
    done = 0
    for line in _LINE.finditer(text):
        at = line.end()
        while at < len(text) and text[at] not in _BREAKS and _is_invisible(text[at]):
            at += 1
        if _NAMED.match(text, at):
            pieces += (text[done:at], "\\")
            done = at
    return "".join((*pieces, text[done:]))


def _is_invisible(char: str) -> bool:
    return char in BLANK_LETTERS or unicodedata.category(char) in _INVISIBLE
