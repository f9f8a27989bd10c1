"""What must hold for every text that a model may write, cut for any platform."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from adapters.telegram.render import render
from adapters.text import inline
from adapters.text.blocks import Block, Fence, Paragraph, plain_text
from adapters.text.markdown import parse, quickly
from adapters.text.spans import Style
from adapters.text.split import SMALLEST_LIMIT, Size, split
from adapters.text.thorough import Document, TooDeepError, thorough
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Outbound
from tests.machine import cpu_seconds, slowness

WORDS = st.sampled_from(
    [
        "word",
        "**bold**",
        "*it*",
        "`code`",
        "[link](https://example.org/a)",
        "[rel](a.md)",
        "~~gone~~",
        "👩‍👩‍👧‍👦",
        "e\u0301",
        "🇩🇪",
        "😀" * 9,
        "x" * 40,
    ]
)
PROSE = st.lists(WORDS, min_size=1, max_size=30).map(" ".join)
CODE = st.text(st.characters(exclude_characters="`\r", exclude_categories=["Cs", "Cc"]), max_size=200).map(
    lambda s: f"```python\n{s}\nend\n```"
)
TABLE = st.lists(
    st.lists(st.sampled_from(["a", "long cell " * 5, "😀"]), min_size=2, max_size=2), min_size=1, max_size=8
).map(lambda rows: "| h | i |\n|---|---|\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows))
BULLETS = st.lists(PROSE, min_size=1, max_size=5).map(
    lambda items: "\n".join(f"{'  ' * (n % 3)}- {item}" for n, item in enumerate(items))
)
QUOTES = PROSE.map(lambda text: f"> {text}\n> - {text}")
HEADINGS = PROSE.map(lambda text: f"## {text}")
MARKDOWN = st.lists(st.one_of(PROSE, CODE, TABLE, BULLETS, QUOTES, HEADINGS, st.just("---")), max_size=8).map(
    "\n\n".join
)
NOISE = st.text(st.sampled_from(list("ab *_`~[]()!<>#-|\n\\&1.:😀\u0301\u200d")), max_size=400)
ANYTHING = st.one_of(MARKDOWN, NOISE, st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
LIMITS = st.one_of(st.integers(SMALLEST_LIMIT, 120), st.integers(SMALLEST_LIMIT, 5000))


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def measure(block: Block) -> Size:
    marks = len(block.spans) if isinstance(block, Paragraph) else 1
    return Size(utf16(plain_text(block)) + utf16(block.marker) + 1 + 2 * block.indent + 2, marks + (block.quote > 0))


def letters(blocks: "list[Block] | tuple[Block, ...]") -> str:
    return "".join("".join((block.marker + plain_text(block)).split()) for block in blocks)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ANYTHING, LIMITS, st.integers(3, 100))
@example("x" * 5000, 4096, 100)
@example("> " * 12 + "deep", 16, 3)
@example("- " * 15 + "deep", 16, 3)
def test_every_piece_keeps_the_limit_and_nothing_is_lost(markdown: str, units: int, marks: int) -> None:
    blocks, limit = parse(markdown), Size(units, marks)
    pieces = list(split(blocks, limit, measure))
    assert all(piece for piece in pieces)
    for piece in pieces:
        assert limit.holds(sum((measure(block) for block in piece), Size(0)))
    assert letters([block for piece in pieces for block in piece]) == letters(blocks)


@settings(max_examples=100, deadline=None)
@given(ANYTHING, LIMITS)
def test_spans_stay_inside_their_text_and_never_cross(markdown: str, units: int) -> None:
    for piece in split(parse(markdown), Size(units, 100), measure):
        for block in piece:
            if not isinstance(block, Paragraph):
                continue
            for span in block.spans:
                assert 0 <= span.start < span.end <= len(block.text)
            for one, two in ((a, b) for a in block.spans for b in block.spans):
                assert not one.start < two.start < one.end < two.end


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.text(st.characters(exclude_characters="`\r\n", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60),
        min_size=1,
    ),
    st.integers(80, 300),
)
def test_lines_of_code_come_out_whole_in_fences_of_the_same_language(lines: list[str], units: int) -> None:
    markdown = "```python\n" + "\n".join(lines) + "\n```"
    blocks = [
        block
        for piece in split(parse(markdown), Size(max(units, 2 * max(map(utf16, lines)) + 8), 100), measure)
        for block in piece
    ]
    assert all(isinstance(block, Fence) and block.language == "python" for block in blocks)
    assert "\n".join(plain_text(block) for block in blocks) == "\n".join(lines)


@settings(max_examples=100, deadline=None)
@given(st.lists(WORDS, min_size=20, max_size=200).map(" ".join), st.integers(60, 400))
def test_links_and_joined_characters_stay_whole(markdown: str, units: int) -> None:
    for piece in split(parse(markdown), Size(units, 100), measure):
        for block in piece:
            assert isinstance(block, Paragraph)
            assert all(block.text[s.start : s.end] == "link" for s in block.spans if s.style is Style.LINK)
            assert block.text.count("\U0001f469") % 2 == 0  # the family has two women
            assert not block.text.startswith(("\u0301", "\u200d"))


@settings(max_examples=100, deadline=None)
@given(st.one_of(MARKDOWN, NOISE))
def test_no_letter_of_the_answer_is_dropped_by_the_parser(markdown: str) -> None:
    shown = "".join(plain_text(block) for block in parse(markdown.replace("b", "B").replace("```", "")))
    assert shown.count("B") >= markdown.count("b")


MARKS = (
    "* ** *** _ __ ~~ ~ ` `` [ ] ( ) ]( ](u) ](https://e.org/a_b) [a_b](a_b) ! < > & &amp; \\ a b é 😀 \u00a0 . # a*b “"
)
ATOMS = st.sampled_from([*MARKS.split(" "), " ", "  ", "\n", "\t"])


@settings(max_examples=1_500)
@given(st.one_of(st.lists(ATOMS, max_size=16).map("".join), PROSE, NOISE.map(lambda text: text[:40])))
def test_the_quick_reader_reads_as_the_parser_does_or_not_at_all(text: str) -> None:
    parser = MarkdownIt("commonmark").enable("strikethrough").disable(["html_inline"])
    quick = inline.read(text.strip(), parser)
    assert quick is None or quick == thorough(parser.inline.parse(text.strip(), parser, {}, []))


@given(st.from_regex(inline.USUAL_URL, fullmatch=True))
def test_a_usual_address_is_one_that_the_parser_leaves_alone(url: str) -> None:
    parser = MarkdownIt("commonmark")
    assert parser.normalizeLink(url) == url
    assert parser.validateLink(url)
    assert "xn--" in url or parser.normalizeLinkText(url) == url


INDENTS = st.sampled_from(["", "", "", " ", "  ", "  ", "   ", "    ", "      ", "\t", "> ", "> ", "> > ", "- ", "1. "])
NASTY = (
    "text  **b** `c`  [1]: https://e.org  [1]  [](https://e.org)  &nbsp;  - i  * j  1. n  2. m  3) o  10. p  -  1.  - - n  - # h"
    "  - > q  - ```  ---  ***  - - -  =  ===  #  #tag  ## h  ## h ##  # a|b  ```  ```py  ```` a|b  ~~~  >  > q  >q  > - i  >\tt"
    "  a | b  a|  |a  |-  -|-  --|--  :-  |---|---|  | a | b |  | 1 \\| 2 |  | `x|y` |  ||  a\\  \u2003x  x\u00a0  \x0b  -\ti"
)
LINES = st.sampled_from(NASTY.split("  "))
ITEMS = st.sampled_from(["- a", "- a", "* b", "1. c", "2. d", "text", "```", "- [1]: u", "> q", ""])
ANY_LINES = st.one_of(
    st.lists(st.one_of(st.just(""), st.builds(str.__add__, INDENTS, LINES)), max_size=10),
    st.lists(st.builds(str.__add__, st.sampled_from(["", "", "  ", "   ", "    ", "     "]), ITEMS), max_size=12),
).map("\n".join)


@settings(max_examples=1_000, deadline=None)
@given(st.one_of(ANY_LINES, ANY_LINES, MARKDOWN, NOISE))
def test_blocks_are_read_as_the_parser_does(text: str) -> None:
    quick, thoroughly = Document(text), Document(text)
    try:
        blocks = quickly(quick)
    except TooDeepError:
        with pytest.raises(TooDeepError):
            list(thoroughly.whole())
        return
    assert blocks in (None, list(thoroughly.whole()))
    assert quick.definitions == thoroughly.definitions


def test_ten_thousand_characters_are_cut_at_once() -> None:
    markdown = (
        "A sentence with **bold** and `code` and [a link](https://example.org/x). " * 12
        + "\n\n- one\n- two\n\n```\nx = 1\n```\n\n"
    ) * 12
    blocks = parse(markdown[:10_000])
    assert cpu_seconds(lambda: list(split(blocks, Size(4096, 100), measure))) < 0.05 * slowness()
    assert cpu_seconds(lambda: parse(markdown[:10_000])) < 0.2 * slowness()


GUIDE = """## How to set up the **server**

First, look whether Python is there. The command prints a version, such as `3.11.7`; anything *newer* is fine too.

1. **Install the package**

   ```bash
   pip install example
   ```

2. **Write the configuration.** It lives in `~/.config/example.toml`:

   - `host`: where it listens
   - `port`: which port, by default `8080`
     - keep it above 1024
   - `log`: how much it says, see [the docs](https://example.org/docs/log)

3. Start it, and look at what it prints

> **Note**: the first start takes a while.
> It builds an index.

| Option | Default     | Meaning          |
|:-------|:-----------:|-----------------:|
| `host` | `127.0.0.1` | where it listens |

Questions:
- Does it run as a service?
- Where are the logs?

---

"""
ADVICE = """There are three things to look at: cost, time, and who does it. I'd say the *second* matters most here,
because everything else follows from it.

**Cost.** About 1,200 € a year [1], half of it for the machines – see [this page](https://example.org/prices?x=1). 👩‍👩‍👧‍👦

### What I would do

* Ask **Anna** first: she has done it before.
* Then write it down, e.g. in `plan.md`.

"""
ANSWERS = {
    "list": "".join(f"- **item {number}** with `code` and *it*\n" for number in range(400)),
    "marks": "**bold** and `code` and *it* and [l](https://e.org) ~~x~~ " * 200,
    "mixed": "# Title\n\nSome **bold** text with a [link](https://example.org) and `code`.\n\n- one\n- two\n  - three\n\n"
    "```python\nprint(1)\n```\n\n> quote\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n" * 60,
    "plain": ("word " * 12 + "\n\n") * 200,
    "guide": GUIDE * 12,
    "advice": ADVICE * 25 + "\n[1]: https://example.org/sources\n",
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_ten_thousand_characters_are_rendered_in_five_milliseconds(answer: str) -> None:
    address = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="1")
    outbound = Outbound(address=address, text=ANSWERS[answer][-10_000:])
    assert cpu_seconds(lambda: render(outbound), times=20) < 0.005 * slowness()


def test_nothing_takes_for_ever() -> None:
    nasty = [
        "[" * 60_000,
        "![" * 30_000,
        "*a " * 20_000,
        "> " * 30_000,
        "|a" * 100 + "\n" + "|-" * 100 + "\n" + "|b\n" * 20_000,
        "\u0301" * 60_000,
    ]
    for text in nasty:
        seconds = cpu_seconds(lambda text=text: list(split(parse(text), Size(4096, 100), measure)), times=1)
        assert seconds < 20 * slowness()
