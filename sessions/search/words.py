"""Puts the namespace in front of each word in the SQLite indexes, so that "tea" of one namespace and "tea" of another are two words.

A search for a word then reads only what its namespace has with that word, and cannot find anything of another one.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

_NO_VOWELS = str.maketrans("ae", "xz")
_EVERYWHERE = "w"
"""What the words for a search over all namespaces begin with. A namespace begins with another letter (`namespace_token`), so nobody can
write a word that counts as one of another namespace."""


class Mark(StrEnum):
    """Says where the word stands: in a message, in its sender's name, in the messages around it; in a note, or in a question that a note
    answers. `ALL` stands alone: every message of the namespace has it. The marks and the namespace contain no vowels, because the stemmer of
    SQLite counts vowels."""

    TEXT = "t"
    SENDER = "s"
    NEAR = "c"
    ALL = "x"
    NOTE = "n"
    ASKED = "q"
    __hash__ = str.__hash__  # as in `ranking.Place`


@lru_cache(maxsize=4_096)
def start_of(ns: str, mark: Mark) -> str:
    """Returns what the words of this namespace begin with. `ns`: see `namespace_token`; empty for a search over all namespaces."""
    return (ns.translate(_NO_VOWELS) or _EVERYWHERE) + mark


def scoped(ns: str, mark: Mark, said: str) -> str:
    """Returns the text with the namespace in front of each word. Its words must be separated by single spaces."""
    start = start_of(ns, mark)
    return f"{start}{said.replace(' ', f' {start}')}" if said else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`ns`: the namespace as one word of the index (`query.namespace_token`). `words`: the content words of the message, each once.
    `ctx`: those of the messages around it, two before and one after."""

    message_id: int
    ns: str
    sender: str
    text: str
    words: str
    ctx: str
