"""Which messages hold the words of a query, best first: the same on both databases, for the command line, recall and the agent's tool.

Each word counts by its rarity: within the namespace that is searched, so that nothing is told of others. It counts most in what was
said, less in what was said around it; the name of who said it counts double. Observations count for the messages that they are from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sessions.db.query import Term

MOST = 100_000
RANK_OFFSET = 60
"""Of the merging of two rankings, as it is usual: larger numbers give less to the first places."""
TELLING, MOST_TERMS, MOST_IN_PASSING = 0.7, 8, 6
HOLDERS = 500
"""In a long past, words that more messages than these hold count only where there are few others: so a search takes no longer there."""
HOLDERS_IN_PASSING, NEAR_IN_PASSING = 200, 60
"""The same for a search that nobody has asked for; and for the neighbours of what holds them, of whom there are more."""
COUNTED = 5_000
"""So many messages are counted where that is all that matters."""
RARE = 1.5
"""Only rarer words count for the neighbours of what holds them: others stand near nearly everything."""
MANY = 200
"""Among so many messages, a word that half of them hold says nothing: it counts only where there are few others."""


class Place(StrEnum):
    """Where a word may stand."""

    TEXT = "text"
    SENDER = "sender"
    NEAR = "near"
    NOTE = "note"
    ASKED = "asked"


WEIGHTS = {Place.TEXT: 1.0, Place.SENDER: 1.8, Place.NEAR: 0.75, Place.NOTE: 0.6, Place.ASKED: 1.2}
"""Chosen with `bench/recall.py`. A note has mostly the words of its messages; the questions that it answers have others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What a word adds to the score of whatever holds it in this place."""

    place: Place
    term: Term
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """`messages`: how many there are; `holders`: how many of them hold each word. `empty`: places that surely hold none of the words."""

    messages: int
    holders: Sequence[int]
    empty: frozenset[Place] = frozenset()


class Lookup(Protocol):
    """How a database looks words up, within a namespace or everywhere."""

    def count(self, terms: Sequence[Term], most: int | None) -> Counts:
        """`most`: of each word no more holders are counted."""
        ...

    def best(self, wanted: Sequence[Weighed], limit: int) -> list[int]:
        """Ids of messages by their scores, the newest first among equals. Of the notes from a message the best one counts."""
        ...

    def best_notes(self, terms: Sequence[Term], limit: int) -> list[int]:
        """Ids of observations, those that hold most of the terms first, the newest first among equals."""
        ...


def ranked(
    index: Lookup, terms: Sequence[Term], limit: int | None, *, literal: bool = False, least: int = 2
) -> list[int]:
    """Ids of messages. `literal`: only what was said counts. `least`: how many terms count however common they are."""
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
    return Weighed(place=place, term=term, score=round(WEIGHTS[place] * rarity, 6))


def merged(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Two rankings as one: each place counts by the reciprocal of its rank. Of equals, what the first has comes first."""
    scores: dict[int, float] = {}
    for ranking in (first, second):
        for place, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_OFFSET + place)
    return sorted(scores, key=lambda number: -scores[number])
