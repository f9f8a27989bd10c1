"""The quick reader: what it reads, and what it leaves to the parser."""

import pytest
from markdown_it import MarkdownIt

from adapters.text.inline import read
from adapters.text.spans import Span, Style

PARSER = MarkdownIt("commonmark")
BOLD, ITALIC, STRIKE, CODE, LINK = Style.BOLD, Style.ITALIC, Style.STRIKE, Style.CODE, Style.LINK


@pytest.mark.parametrize(
    ("text", "shown", "spans"),
    [
        ("plain words, 2 * 3 & so on < that", "plain words, 2 * 3 & so on < that", []),
        ("**a *b* `c`** ~~d~~", "a b c d", [(0, 5, BOLD), (2, 3, ITALIC), (4, 5, CODE), (6, 7, STRIKE)]),
        ("__a__ _b_ snake_case_name", "a b snake_case_name", [(0, 1, BOLD), (2, 3, ITALIC)]),
        ("a**b**c", "abc", [(1, 2, BOLD)]),
        ("` x ` and ` `", "x and  ", [(0, 1, CODE), (6, 7, CODE)]),
        ("[`f`](https://e.org) x", "f x", [(0, 1, LINK, "https://e.org"), (0, 1, CODE)]),
        ("**[l](https://e.org/a_b?c=1#d)**", "l", [(0, 1, LINK, "https://e.org/a_b?c=1#d"), (0, 1, BOLD)]),
        ("[l](https://e.org/%zz)", "l", [(0, 1, LINK, "https://e.org/%25zz")]),
        ("[l](notes.md)", "l (notes.md)", []),
        ("[my_notes.md](my_notes.md)", "my_notes.md", []),
        ("see [1], [ ] and [x]", "see [1], [ ] and [x]", []),
        ("\\*no\\* \\n C:\\dir", "*no* \\n C:\\dir", []),
        ("one  \n  two \nthree", "one\ntwo\nthree", []),
        ("still **growing", "still **growing", []),
        ("still `growing", "still `growing", []),
        ("still [growing](https://e", "still [growing](https://e", []),
        ("***a*** b", "a b", [(0, 1, BOLD), (0, 1, ITALIC)]),
        ("<https://e.org/a_b>", "https://e.org/a_b", [(0, 17, LINK, "https://e.org/a_b")]),
        ("![i](https://e.org/i.png)", "i", [(0, 1, LINK, "https://e.org/i.png")]),
        ("![](https://e.org)", "https://e.org", [(0, 13, LINK, "https://e.org")]),
        ("[[x] and ![ and [[[", "[[x] and ![ and [[[", []),
        ("*a **b*", None, []),
    ],
)
def test_what_it_reads(text: str, shown: str | None, spans: list[tuple[object, ...]]) -> None:
    assert read(text, PARSER) == (None if shown is None else (shown, tuple(Span(*span) for span in spans)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "![*i*](u)",
        "[[i](u)",
        "<mailto:a@e.org>",
        "<https://e.org/ü>",
        "<https://xn--bcher-kva.example>",
        "&amp;",
        "``a`b``",
        "***a** b*",
        "~~~a~~~",
        '[l](u "title")',
        "[l](<u>)",
        "[a [b] c](u)",
        "[l](javascript:x)",
        "*a _b* c_",
        "a\\\nb",
        "*a " * 30 + "b* " * 30,
    ],
)
def test_what_it_leaves_to_the_parser(text: str) -> None:
    assert read(text, PARSER) is None
