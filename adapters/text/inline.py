"""The usual marks inside a block, read in one pass. What is rare or doubtful is left to the parser, which takes ten times as long.

Marks are paired as CommonMark wants it, as long as they nest: then the closing one always belongs to the last that is open.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from string import punctuation
from typing import NamedTuple

from markdown_it import MarkdownIt

from adapters.text.spans import Line, Span, Style

_MARK = re.compile(
    r"""
    (?P<before>[^*_~`\[\\\n!<&]*+)
    (?:
        (?<![^ \t\n!-/:-@\[-`{-~])  # so it cannot close another
        (?P<simple>(?P<sign>\*{1,3}+|~~)(?P<words>[^\W_](?:[^*_~`\[\]\\\n!<&]*[^\W_])?)(?P=sign)(?![*~]))
      | (?P<run>\*\*?(?!\*)|__?(?!_)|~~(?!~))
      | `(?P<code>[^`]+)`(?!`)
      | <(?P<address>https?://[^\s<>]*)>
      | (?P<picture>!)?\[(?P<label>(?:[^\[\]\\<&\n`]++|`[^`\[\]\n]+`(?!`))*+)\]\((?P<url>[^\s()<>\\&\x00-\x1f\x7f]*)\)
      | (?P<bracket>\[)(?=[^\[\]\\`<&]*(?:\](?!\()|\Z))  # such as [1] and [ ], where there are no definitions
      | (?P<unfinished>\[)(?=[^\[\]\\`<&]*\]\()
      | (?P<escape>\\[^\n])
      | (?P<newline>\n[ \t]*)
      | (?P<ticks>`+)
      | (?P<opening>(?:!?\[)+)
      | (?P<doubtful>[*_]|~~~|\\(?=\n)|<(?=[^<>]*>)|&(?=\#?\w+;))
      | (?P<other>[~!<&\\])
      | \Z
    )
    """,
    re.VERBOSE,
)
USUAL_URL = re.compile(r"(?:https?://[a-z0-9][a-z0-9.-]*(?::[0-9]+)?(?![^/?\#]))?[A-Za-z0-9/?\#=+,._~-]*")
_STYLES = {
    "**": Style.BOLD,
    "__": Style.BOLD,
    "*": Style.ITALIC,
    "***": Style.ITALIC,  # and bold
    "_": Style.ITALIC,
    "~~": Style.STRIKE,
}
_CLOSING = {"ticks": "`", "unfinished": ")", "opening": "]("}
_SPECIAL = re.compile(r"[*_~`\[\\\n!<&]")
_OPEN_AT_ONCE = 20
_WHITE, _PUNCTUATION, _OTHER = range(3)


class _Opened(NamedTuple):
    run: str
    start: int
    source: int


def read(text: str, parser: MarkdownIt) -> tuple[str, tuple[Span, ...]] | None:
    """None: ask the parser. There must be no definitions of links in the document."""
    if not _SPECIAL.search(text):
        return text, ()
    line = Line()
    unclosed = _read(text, line, parser)
    if unclosed:  # as at the end of an answer that still grows
        line = Line()
        unclosed = _read(text, line, parser, plain=unclosed)
    return None if unclosed is None else line.read()


def _read(text: str, line: Line, parser: MarkdownIt, *, plain: Sequence[int] = ()) -> list[int] | None:
    """Where marks stand that nothing closes. None when in doubt. The marks at `plain` are characters like any other."""
    opened: list[_Opened] = []
    for mark in _MARK.finditer(text):
        start, end, kind = mark.end("before"), mark.end(), mark.lastgroup
        if before := mark["before"]:
            line.write(before.rstrip(" ") if kind == "newline" else before)
        if kind == "run" and start not in plain:
            certain = _pair(text, start, end, line, opened)
        elif kind == "simple" or kind == "code":
            certain = _whole(mark, line)
        elif kind == "url":
            certain = _link(mark, line, parser)
        elif kind == "address":
            certain = _address(mark["address"], line)
        else:
            certain = _show(kind, text, start, end, line)
        if not certain:
            return None
    return [mark.source for mark in opened]


def _whole(mark: re.Match[str], line: Line) -> bool:
    """Marks that stand around something without any other."""
    begin, sign = line.length, mark["sign"]
    line.write(mark["words"] or _code(mark["code"]))
    if sign == "***":
        line.mark(Style.BOLD, begin)
    line.mark(_STYLES[sign] if sign else Style.CODE, begin)
    return True


def _show(kind: str | None, text: str, start: int, end: int, line: Line) -> bool:
    """What is read when it marks nothing. False when in doubt."""
    shown = text[start:end]
    match kind:
        case "newline":
            shown = "\n"
        case "escape" if shown[1] in punctuation:
            shown = shown[1]
        case "run" | "bracket" | "escape" | "other" | "before":
            pass
        case "ticks" | "unfinished" | "opening" if _last(text, _CLOSING[kind]) < end:
            pass
        case _:
            return False
    line.write(shown)
    return True


@lru_cache(maxsize=len(_CLOSING))
def _last(text: str, closing: str) -> int:
    return text.rfind(closing)


def _pair(text: str, start: int, end: int, line: Line, opened: list[_Opened]) -> bool:
    """False where it is not certain which mark it belongs to."""
    run = text[start:end]
    opens, closes = _flanks(text[start - 1] if start else " ", run[0], text[end] if end < len(text) else " ")
    if closes and opened and opened[-1].run == run:
        line.mark(_STYLES[run], opened.pop().start)
    elif (closes and any(mark.run[0] == run[0] and (mark.run == run or not opens) for mark in opened)) or (
        opens and len(opened) == _OPEN_AT_ONCE
    ):
        return False
    elif opens:
        opened.append(_Opened(run, line.length, start))
    else:
        line.write(run)
    return True


@lru_cache(maxsize=4096)
def _flanks(before: str, mark: str, after: str) -> tuple[bool, bool]:
    """Whether a run of marks between these two characters can open, and whether it can close."""
    left, right = _kind(before), _kind(after)
    is_left = right == _OTHER or (right == _PUNCTUATION and left != _OTHER)
    is_right = left == _OTHER or (left == _PUNCTUATION and right != _OTHER)
    if mark != "_":
        return is_left, is_right
    return is_left and (not is_right or left == _PUNCTUATION), is_right and (not is_left or right == _PUNCTUATION)


def _kind(char: str) -> int:
    category = unicodedata.category(char)
    if category == "Zs" or char in "\t\n\v\f\r":
        return _WHITE
    return _PUNCTUATION if category[0] in "PS" else _OTHER


def _code(content: str) -> str:
    code = content.replace("\n", " ")
    padded = code[0] == code[-1] == " " and code.strip(" ")
    return code[1:-1] if padded else code


def _address(address: str, line: Line) -> bool:
    if not USUAL_URL.fullmatch(address) or "xn--" in address:  # which is shown in its own letters
        return False
    begin = line.length
    line.write(address)
    line.link(begin, address)
    return True


def _link(mark: re.Match[str], line: Line, parser: MarkdownIt) -> bool:
    label, url, begin = mark["label"], mark["url"], line.length
    if not USUAL_URL.fullmatch(url):
        url = parser.normalizeLink(url)
        if not parser.validateLink(url):
            return False
    if not _SPECIAL.search(label):
        line.write(label or (url if mark["picture"] else ""))
    elif mark["picture"] or _read(label, line, parser) != []:
        return False
    line.link(begin, url)
    return True
