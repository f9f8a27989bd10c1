import pytest

from adapters.text.blocks import Block, Fence, Paragraph, plain_text
from adapters.text.markdown import parse
from adapters.text.split import Size, split, split_or_file


def measure(block: Block) -> Size:
    return Size(len(block.marker) + len(plain_text(block)) + 2, len(block.spans) if isinstance(block, Paragraph) else 0)


def texts(markdown: str, units: int, marks: int = 100) -> list[list[str]]:
    return [[plain_text(block) for block in piece] for piece in split(parse(markdown), Size(units, marks), measure)]


def test_what_fits_is_one_piece() -> None:
    assert texts("a\n\nb", 20) == [["a", "b"]]
    assert texts("", 20) == []


def test_paragraphs_stay_whole() -> None:
    assert texts("first one\n\nsecond one\n\nthird", 24) == [["first one", "second one"], ["third"]]


def test_a_list_that_fits_a_piece_stays_whole() -> None:
    assert texts("some words\n\n- one\n- two\n- three", 30) == [["some words"], ["one", "two", "three"]]


def test_a_longer_list_is_cut_between_items() -> None:
    assert texts("- first item\n- second item\n- third item", 32) == [["first item", "second item"], ["third item"]]


def test_a_long_text_is_not_begun_in_the_last_corner_of_a_piece() -> None:
    assert texts("x" * 32 + "\n\n" + "one two " * 8, 40)[0] == ["x" * 32]
    assert texts("x" * 20 + "\n\n" + "one two " * 8, 40)[0] == ["x" * 20, "one two one two"]


def test_a_heading_stays_with_its_text() -> None:
    assert texts("words go here\n\n# head\n\nand the text", 30) == [["words go here"], ["head", "and the text"]]


def test_a_fence_that_fits_a_piece_stays_whole() -> None:
    assert texts("words\n\n```\nlong line one\nline two\n```", 26) == [["words"], ["long line one\nline two"]]


def test_a_longer_fence_is_opened_again_at_a_line() -> None:
    pieces = list(split(parse("```py\nline one\nline two\nline three\n```"), Size(22), measure))
    assert pieces == [
        (Fence(code="line one\nline two", language="py"),),
        (Fence(code="line three", language="py", continued=True),),
    ]


def test_long_prose_is_cut_after_a_sentence_else_a_word_else_anywhere() -> None:
    assert texts("One two three four. Five six seven.", 30) == [["One two three four."], ["Five six seven."]]
    assert texts("one two three four five six", 20) == [["one two three four"], ["five six"]]
    assert texts("x" * 30, 20) == [["x" * 18], ["x" * 12]]


def test_a_link_is_not_cut() -> None:
    assert texts("some words [a link here](https://example.org) end", 20) == [["some words "], ["a link here end"]]


def test_bold_goes_on_in_the_next_piece() -> None:
    first, second = split(parse("**one two three four five**"), Size(20, 5), measure)
    assert [len(block.spans) for block in (*first, *second) if isinstance(block, Paragraph)] == [1, 1]


def test_marks_are_a_limit_too() -> None:
    assert texts("`a` `b` `c` `d`", 200, 2) == [["a b"], ["c d"]]


def test_a_table_is_cut_between_rows() -> None:
    first, second = split(parse("| h |\n|---|\n| row one |\n| row two |\n| row three |"), Size(20), measure)
    assert plain_text(first[0]) == "h\nrow one\nrow two"
    assert plain_text(second[0]) == "row three"


def test_a_joined_emoji_is_not_torn() -> None:
    family = "👩‍👩‍👧‍👦"
    assert texts(family * 4, 20) == [[family * 2], [family * 2]]


def test_from_the_sixth_piece_on_only_the_first_is_left() -> None:
    blocks = parse("\n\n".join("ten digits" for _ in range(6)))
    assert split_or_file(blocks, Size(16), measure) == ([blocks[:1]], True)
    assert split_or_file(blocks[:5], Size(16), measure) == ([(block,) for block in blocks[:5]], False)


def test_a_limit_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        list(split(parse("a"), Size(5), measure))
