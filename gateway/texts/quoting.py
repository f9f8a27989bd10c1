"""Escapes other people's words, so that nobody can write under another name, and commands, so that they are shown exactly as they will run."""

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


_LISTED = 200
_TICKS = re.compile("`+")


def visible(text: str) -> str:
    """Spells out characters that cannot be seen or that turn the direction of writing; spaces, tabs and line breaks stay."""
    return "".join(
        char if char in "\n\t" or (char.isprintable() and char not in BLANK_LETTERS) else f"\\u{{{ord(char):x}}}"
        for char in text
    )


def as_code(text: str) -> str:
    """Returns the beginning of the text in one line, as Markdown's code, in which no mark is taken away."""
    line = visible(" ".join(text.split()))
    line = line if len(line) <= _LISTED else f"{line[:_LISTED]}…"
    ticks = "`" * (1 + max((len(found) for found in _TICKS.findall(line)), default=0))
    return f"{ticks}{line}{ticks}" if len(ticks) == 1 else f"{ticks} {line} {ticks}"


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
