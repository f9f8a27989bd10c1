"""Ranks the messages that contain words of a query; the same on both databases, for the command line, recall and the agent's tool.

A rare word counts more. Rarity is counted within the searched namespace, so that the ranking reveals nothing of others. A word counts by
where it is (`WEIGHTS`): in the message, its sender's name, the messages around it, or notes that were made from the message.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from sessions.db.query import Term

MOST = 100_000
RANK_OFFSET = 60
"""The constant of reciprocal rank fusion, with its usual value: the larger it is, the less the first places count."""
TELLING, MOST_TERMS, MOST_IN_PASSING = 0.7, 8, 6
HOLDERS = 500
"""In a namespace with many messages, a word that more messages than this contain counts only when the query has few others. So the time of
a search is bounded."""
HOLDERS_IN_PASSING, NEAR_IN_PASSING = 200, 60
"""The same for recall, which searches for every new message: for the messages with the word, and for the messages around them."""
COUNTED = 500
"""Recall counts the messages of a namespace only up to this number. Counting more changes no ranking in `bench/recall.py`."""
RARE = 1.5
"""Only words of at least this rarity count for the messages around a message; more common words are near almost every message."""
MANY = 200
"""From this many messages on, a word that about half of them contain counts only when the query has few others."""


class Place(StrEnum):
    """Where a word may be: in the message, its sender's name, the messages around it, a note from it, or a question that such a note answers."""

    TEXT = "text"
    SENDER = "sender"
    NEAR = "near"
    NOTE = "note"
    ASKED = "asked"


WEIGHTS = {Place.TEXT: 1.0, Place.SENDER: 1.8, Place.NEAR: 0.75, Place.NOTE: 0.6, Place.ASKED: 1.2}
"""Chosen with `bench/recall.py`. A note has mostly the words of its messages; the questions that it answers have others."""


class Weighed(NamedTuple):
    """What a word adds to the score of a message that contains it in this place, in millionths."""

    place: Place
    term: Term
    score: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """`messages`: number of messages; `holders`: for each word, how many of them contain it. `empty`: places that contain none of the words."""

    messages: int
    holders: Sequence[int]
    empty: frozenset[Place] = frozenset()


class Lookup(Protocol):
    """What ranking needs of a database, for one namespace or all."""

    def count(self, terms: Sequence[Term], most: int | None) -> Counts:
        """Counts messages. `most`: counting stops there for each word; None: counts all."""
        ...

    def best(self, wanted: Sequence[Weighed], limit: int) -> list[int]:
        """Returns ids of messages by score, of equal ones the newest first. When a message has several notes, the best one counts."""
        ...

    def best_notes(self, terms: Sequence[Term], limit: int) -> list[int]:
        """Returns ids of notes: those with most of the terms first, of equal ones the newest first."""
        ...


def ranked(
    index: Lookup, terms: Sequence[Term], limit: int | None, *, literal: bool = False, least: int = 2
) -> list[int]:
    """Returns ids of messages, best first. `literal`: only a message's own words count. `least`: how many terms count even when they are
    common; 0: recall, which has to be fast."""
    in_passing = least == 0 and not literal
    holders = HOLDERS_IN_PASSING if in_passing else HOLDERS
    counts = index.count(terms, holders + 1 if in_passing else None)  # a word that more hold does not count then
    total = counts.messages
    weighed = list(zip(terms, (_rarity(total, number) for number in counts.holders), strict=True))
    if literal:
        return index.best([_weighed(Place.TEXT, *each) for each in weighed], limit or MOST)
    telling = max(TELLING, math.log(max(1.0, total / holders)))
    weighed.sort(key=lambda each: -each[1])
    del weighed[MOST_IN_PASSING if in_passing and total >= MANY else MOST_TERMS :]
    weighed = [each for place, each in enumerate(weighed) if place < least or total < MANY or each[1] >= telling]
    near = 0.0 if total < MANY else max(RARE, math.log(max(1.0, total / NEAR_IN_PASSING)) if in_passing else RARE)
    wanted = [
        _weighed(place, term, rarity)
        for place in Place
        if place not in counts.empty
        for term, rarity in weighed
        if place is not Place.NEAR
        or (rarity >= near and len(weighed) > 1)  # one word's neighbours contain it themselves
    ]
    return index.best(wanted, limit or MOST) if wanted else []


def _rarity(total: int, holders: int) -> float:
    return math.log(1 + (max(total, holders) - holders + 0.5) / (holders + 0.5))


def _weighed(place: Place, term: Term, rarity: float) -> Weighed:
    return Weighed(place, term, int(WEIGHTS[place] * rarity * 1_000_000))


def merged(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Merges two rankings by reciprocal rank fusion. Of equal ones, those of the first ranking come first."""
    scores: dict[int, float] = {}
    for ranking in (first, second):
        for place, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_OFFSET + place)
    return sorted(scores, key=lambda number: -scores[number])
