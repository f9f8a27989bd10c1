"""Words of the index of observations on SQLite are made one with their namespace: to look one up costs as much as it has holders there,
however much is known there and elsewhere, and nothing of another namespace can be found."""

from enum import StrEnum

_NO_VOWELS = str.maketrans("ae", "xz")


class Mark(StrEnum):
    """Where the word stands. No vowels, nor in the namespace: the stemmer counts them."""

    NOTE = "n"
    ASKED = "q"


def start_of(ns: str, mark: Mark) -> str:
    """What such a word begins with. `ns`: see `namespace_token`; empty for a search over all namespaces."""
    return ns.translate(_NO_VOWELS) + mark


def scoped(ns: str, mark: Mark, said: str) -> str:
    """These words, of which each is followed by one space and another, as words of the namespace."""
    start = start_of(ns, mark)
    return f"{start}{said.replace(' ', f' {start}')}" if said else ""
