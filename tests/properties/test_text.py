"""What must hold for every text that a model may write, cut for any platform."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from adapters.text.blocks import Block, Fence, Paragraph, Style, plain_text
from adapters.text.markdown import parse
from adapters.text.split import SMALLEST_LIMIT, Size, split

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


@pytest.mark.timeout(60)
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
        assert list(split(parse(text), Size(4096, 100), measure))
