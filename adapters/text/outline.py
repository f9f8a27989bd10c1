"""The usual blocks of a text, read in one pass. What is rare or doubtful is left to the parser, which takes ten times as long.

What is inside of paragraphs and cells is read later: definitions of links, wherever they stand, decide about it.
"""

import re

from adapters.text.blocks import Block, Rule
from adapters.text.leaves import SPECIAL, DoubtfulError, Prose, fence, prose, table
from adapters.text.lists import Lists

_QUOTES_AT_MOST = 4

_BLOCK = re.compile(
    rf"""
    (?: (?P<heading>(?P<level>\#{{1,6}})[ \t]++(?P<title>[^\s\#][^\n]*+)(?<![\#\s])\n)(?![ ]{{0,3}}[-:|])
      | (?P<item>(?=(?:[-+*]|[0-9]{{1,9}}[.)])[ ][^\n]))(?![*-][*\t -]*+$)
      | (?P<rule>(?:(?:-[ \t]*+){{3,}}+|(?:\*[ \t]*+){{3,}}+|(?:_[ \t]*+){{3,}}+)\n)
      | (?P<fence>(?P<ticks>`{{3,}}+|~{{3,}}+)(?P<info>[^`|\n]*+)\n)
      | (?P<quote>(?:>[^\t\n]*+\n)++)(?=[ \t]*+\n|\Z)
      | (?P<table>\|[^\n\\]*+\n\|[-:| ]*+\n(?:\|[^\n\\]*+\n)*+)(?=[ \t]*+\n|\Z)
      | (?P<text>(?!{SPECIAL})\S[^\n]*+(?:\n[ ]*+(?!{SPECIAL})\S[^\n]*+)*+\n)
        (?=[ \t]*+\n|\Z|\#{{1,6}}[ ]|>|`{{3,}}+[^`|\n]*+\n|[-+*][ ][^\s]|1[.)][ ][^\s])
      | (?P<blank>[ \t]*+\n)
    )
    (?:[ \t]*+\n)*+
    """,
    re.VERBOSE | re.MULTILINE,
)
_QUOTE_MARK = re.compile(r"^> ?", re.MULTILINE)

Found = Prose | Block
"""The cells of a table are still to be read, like prose."""


def read(text: str, at: int, quote: int = 0) -> tuple[list[Found], int] | None:
    """What stands at the beginning of this line, and where it ends. None: ask the parser. The last line must end like the others."""
    block = _BLOCK.match(text, at)
    try:
        return _read(block, quote) if block else None
    except DoubtfulError:
        return None


def _read(block: re.Match[str], quote: int) -> tuple[list[Found], int]:
    end = block.end()
    match block.lastgroup:
        case "text":
            return [prose(block["text"], {"quote": quote})], end
        case "heading":
            return [prose(block["title"], {"quote": quote, "level": len(block["level"])})], end
        case "rule":
            return [Rule(quote=quote)], end
        case "fence":
            code, end = fence(block, 0, 0, {"quote": quote})
            return [code], end
        case "quote":
            return _quote(block["quote"], quote + 1), end
        case "table":
            return [table(block["table"][:-1].split("\n"), quote)], end
        case "item":
            lists = Lists(block.string, quote)
            end = lists.read(block.start())
            return lists.found, end
        case _:
            return [], end


def _quote(lines: str, quote: int) -> list[Found]:
    inside = _QUOTE_MARK.sub("", lines)
    found: list[Found] = []
    at = 0
    while at < len(inside):
        part = read(inside, at, quote) if quote <= _QUOTES_AT_MOST else None
        if part is None:
            raise DoubtfulError
        found += part[0]
        at = part[1]
    return found
