import pytest

from adapters.text.blocks import Fence, Heading, Paragraph, Rule, Span, Style, Table, plain_text
from adapters.text.markdown import PARSED_CHARS, parse


def one(markdown: str):
    (block,) = parse(markdown)
    return block


def test_prose_is_text_and_spans() -> None:
    assert one("a **b** c") == Paragraph(text="a b c", spans=(Span(2, 3, Style.BOLD),))
    assert one("**a `b`**").spans == (Span(0, 3, Style.BOLD), Span(2, 3, Style.CODE))


def test_single_line_ends_are_kept() -> None:
    assert one("a\nb  \nc").text == "a\nb\nc"


def test_headings_rules_and_fences() -> None:
    heading, rule, fence = parse("## T\n\n***\n\n~~~js title=x\n a\n\n~~~")
    assert heading == Heading(text="T", level=2)
    assert rule == Rule()
    assert fence == Fence(code=" a\n", language="js")


def test_a_fence_that_is_still_open_is_a_fence() -> None:
    assert one("```py\nx = 1") == Fence(code="x = 1", language="py")


def test_lists_are_flat_with_marker_and_indent() -> None:
    blocks = parse("- a\n  1. b\n  2. c\n\n     more\n- d")
    assert [(plain_text(b), b.marker, b.indent) for b in blocks] == [
        ("a", "•", 1),
        ("b", "1.", 2),
        ("c", "2.", 2),
        ("more", "", 2),
        ("d", "•", 1),
    ]


def test_lists_begin_where_they_say() -> None:
    assert [block.marker for block in parse("0. a\n1. b")] == ["0.", "1."]


def test_items_keep_the_numbers_that_they_were_given() -> None:
    assert [block.marker for block in parse("2. a\n5. b\n7. c")] == ["2.", "5.", "7."]
    assert [block.marker for block in parse("1. a\n1. b\n1. c")] == ["1.", "2.", "3."]


def test_a_tight_list_has_no_blank_lines_inside() -> None:
    assert [block.tight for block in parse("text\n\n- a\n- b\n\ntext")] == [False, False, True, False]
    assert [block.tight for block in parse("- a\n\n- b")] == [False, False]


def test_quotes_have_a_depth() -> None:
    assert [(block.quote, plain_text(block)) for block in parse("> a\n>\n> > b\n\nc")] == [(1, "a"), (2, "b"), (0, "c")]


def test_tables_hold_plain_cells() -> None:
    assert one("| a | b |\n|---|---|\n| **1** | `2` |\n| 3 |") == Table(header=("a", "b"), rows=(("1", "2"), ("3", "")))


def test_links_and_pictures() -> None:
    assert one("[a](https://example.org) ![b](https://example.org/i.png) <https://example.org>").spans == (
        Span(0, 1, Style.LINK, "https://example.org"),
        Span(2, 3, Style.LINK, "https://example.org/i.png"),
        Span(4, 23, Style.LINK, "https://example.org"),
    )


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("[a](b.md)", "a (b.md)"),
        ("[](b.md)", " (b.md)"),
        ("[b_c.md](b_c.md) and ![b_c.md](b_c.md)", "b_c.md and b_c.md"),
        ("[a](javascript:alert)", "[a](javascript:alert)"),
        ("<b>x</b> & &amp; y", "<b>x</b> & & y"),
        ("snake_case_name and 2*3*4", "snake_case_name and 234"),
        ("C:\\dir \\* x", "C:\\dir * x"),
    ],
)
def test_what_means_nothing_stays_readable(markdown: str, shown: str) -> None:
    assert one(markdown).text == shown


def test_a_list_of_sources_does_not_vanish() -> None:
    text, source = parse(
        "See [1] and [2].\n\n[1]: https://example.org/a\n[2]: https://example.org/a\n[3]: https://example.org/c"
    )
    assert text.text == "See 1 and 2."
    assert source.text == "[3]: https://example.org/c"
    assert one("[1]: https://example.org").text == "[1]: https://example.org"


def test_nesting_that_the_parser_gives_up_on_is_plain_text() -> None:
    assert [plain_text(block) for block in parse("**a**\n\n" + ">" * 40 + " deep")] == ["**a**", ">" * 40 + " deep"]


def test_the_far_end_of_a_huge_text_is_plain() -> None:
    *_, last = parse("a\n\n" * (PARSED_CHARS // 3) + "\n\n**b**")
    assert last == Paragraph(text="**b**")


def test_nothing_gives_no_blocks() -> None:
    assert parse("") == parse("\n \n") == ()
