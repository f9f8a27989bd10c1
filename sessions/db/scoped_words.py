"""Puts the namespace in front of each word in the SQLite index of notes, so that "tea" of one namespace and "tea" of another are two words.

A search for a word then reads only the notes of its namespace that contain it, and cannot find notes of another one.
"""

from enum import StrEnum

_NO_VOWELS = str.maketrans("ae", "xz")


class Mark(StrEnum):
    """Says which text of a note the word stands in: its own, or a question that it answers. The marks and the namespace contain no vowels, because the stemmer of
    SQLite counts vowels."""

    NOTE = "n"
    ASKED = "q"


def start_of(ns: str, mark: Mark) -> str:
    """Returns what the words of this namespace begin with. `ns`: see `namespace_token`; empty for a search over all namespaces."""
    return ns.translate(_NO_VOWELS) + mark


def scoped(ns: str, mark: Mark, said: str) -> str:
    """Returns the text with the namespace in front of each word. Its words must be separated by single spaces."""
    start = start_of(ns, mark)
    return f"{start}{said.replace(' ', f' {start}')}" if said else ""
