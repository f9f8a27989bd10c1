"""What of a long message is shown."""

from gateway.agent.memory.recall import excerpt
from sessions.search.query import stems

FILLER = "words without any meaning here, " * 40


def test_of_a_long_text_the_place_that_shares_most_words_is_shown() -> None:
    text = f"the lock once. {FILLER} the lock of the garage door has the code 4711 {FILLER}"
    shown = excerpt(text, stems("codes for garages and locks?"), 200)
    assert "garage door has the code 4711" in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert len(shown) <= 204


def test_a_word_inside_another_is_no_word() -> None:
    text = f"a concatenation of scatter {FILLER} my cat sleeps {FILLER}"
    assert "my cat sleeps" in excerpt(text, stems("which cat?"), 200)


def test_scripts_without_spaces_and_texts_that_share_nothing() -> None:
    assert "ラーメン" in excerpt(f"{FILLER}今日はラーメンを食べました。{FILLER}", stems("ラーメン"), 200)
    assert excerpt(FILLER, stems("nothing of that"), 200).startswith("words without")
    assert excerpt("a  short\n one", stems("short"), 200) == "a short one"
