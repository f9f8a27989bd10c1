"""Plain text in Markdown, so that nothing in it is taken for formatting."""

import re

_SIGNS = re.compile(r"[\\`*~\[\]|<]|(?<![^\W_])_|_(?![^\W_])")
_AT_LINE_START = re.compile(r"^([ \t]*)(#{1,6}|[-+]|=+|-{2,})(?=[ \t\n]|$)", re.MULTILINE)
_QUOTE_AT_LINE_START = re.compile(r"^([ \t]*)>", re.MULTILINE)
_NUMBER_AT_LINE_START = re.compile(r"^([ \t]*\d{1,9})([.)])(?=[ \t\n]|$)", re.MULTILINE)


def escape_markdown(text: str) -> str:
    if text.isalnum():
        return text
    text = _SIGNS.sub(lambda found: f"\\{found[0]}", text)
    text = _AT_LINE_START.sub(r"\1\\\2", text)
    text = _QUOTE_AT_LINE_START.sub(r"\1\\>", text)
    return _NUMBER_AT_LINE_START.sub(r"\1\\\2", text)
