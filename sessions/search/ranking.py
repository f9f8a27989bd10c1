"""Ranks the messages that contain words of a query: the same on both databases, for the command line, recall and the agent's tool.

A rare word counts more. Rarity is counted within the searched namespace, so that the ranking reveals nothing of others. A word counts by
where it is (`WEIGHTS`): in the message, its sender's name, the messages around it, or notes that were made from the message.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from sessions.search.query import SearchScope, Term

MOST = 100_000
RANK_OFFSET = 60
"""The constant of reciprocal rank fusion, with its usual value: the larger it is, the less the first places count."""
LEAST_RARITY, ALWAYS_COUNTED, MOST_TERMS = 0.7, 2, 12
"""A query looks for so many words, the rarest. The first of them count however common they are, the others when they are this rare."""
RECALL_MOST_TERMS, RECALL_MOST_NEAR = 8, 5
"""Recall looks for so many words, the rarest that some message contains, in messages and in the messages around them. In notes it looks
also for words that no message contains."""
COMMON, COMMON_NEAR = 500, 200
"""A word is common when more messages than this contain it: in a namespace with many messages it counts only when the query has few others; for
recall, which searches for every new message, not at all. So the time of a search is bounded. The same for the messages around those with the
word."""
COUNTED = 1_000
"""Recall counts the messages of a namespace only up to this number. Counting more changes no ranking in `bench/recall.py`."""
LEAST_RARITY_NEAR = 1.5
"""Only words of at least this rarity count for the messages around a message; more common words are near almost every message."""
MANY_MESSAGES = 200
"""From this many messages on, a word that about half of them contain counts only when the query has few others."""
MEASURED = 100
"""So many of the best messages are ranked by their length, too."""
SATURATION, LENGTH = 1.2, 0.25
"""The constants of BM25, with their usual values."""


class Place(StrEnum):
    """Where a word may be: in the message, its sender's name, the messages around it, a note from it, or a question that such a note answers."""

    TEXT = "text"
    SENDER = "sender"
    NEAR = "near"
    NOTE = "note"
    ASKED = "asked"
    __hash__ = str.__hash__  # that of an enum is a Python function, and a search looks places up a hundred times


WEIGHTS = {Place.TEXT: 1.0, Place.SENDER: 1.8, Place.NEAR: 0.75, Place.NOTE: 0.6, Place.ASKED: 1.2}
"""Chosen with `bench/recall.py`. A note has mostly the words of its messages; the questions that it answers have others."""


class Weighed(NamedTuple):
    """What a word adds to the score of a message that contains it in this place, in millionths."""

    place: Place
    term: Term
    score: int


class _Word(NamedTuple):
    """A word of the query. `holders`: how many messages contain it."""

    rarity: float
    term: Term
    holders: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """`messages`: number of messages; `holders`: for each word, how many of them contain it. `empty`: places that contain none of the words."""

    messages: int
    holders: Sequence[int]
    empty: frozenset[Place] = frozenset()


class Lookup(Protocol):
    """What ranking needs of a database, for one namespace or all."""

    def count(self, terms: Sequence[Term], most: int | None, most_messages: int | None) -> Counts:
        """Counts messages. Counting stops at `most` for each word, and at `most_messages` for all messages; None: counts all."""
        ...

    def best(self, wanted: Sequence[Weighed], limit: int) -> list[tuple[int, int]]:
        """Returns ids of messages with their scores, the highest first, of equal ones the newest. When a message has several notes, the best
        one counts."""
        ...

    def lengths(self, found: Sequence[int]) -> Mapping[int, int]:
        """Returns the characters of these messages."""
        ...

    def best_notes(self, terms: Sequence[Term], limit: int) -> list[int]:
        """Returns ids of notes: those with most of the terms first, of equal ones the newest first."""
        ...


def ranked(
    index: Lookup,
    terms: Sequence[Term],
    scope: SearchScope,
    limit: int | None,
    *,
    literal: bool = False,
    recall: bool = False,
) -> list[int]:
    """Returns ids of messages, best first. `literal`: only a message's own words count. `recall`: it has to be
    fast; else the rarest of the terms count even when they are common."""
    for_recall = recall and not literal
    counted_before = min(scope.messages, COUNTED) if for_recall else 0
    if for_recall:  # a word that more messages contain does not count then
        counts = index.count(terms, COMMON + 1, 0 if counted_before == COUNTED else COUNTED)
    else:
        counts = index.count(terms, None, None)
    total = max(counted_before, counts.messages)
    words = [_Word(_rarity(total, n), term, n) for term, n in zip(terms, counts.holders, strict=True)]
    if literal:
        return _by_length(index, [_weighed(Place.TEXT, word) for word in words], limit)
    words.sort(key=lambda word: -word.rarity)
    if not for_recall:  # recall limits the words later: those that no message contains must not push out the others
        del words[MOST_TERMS:]
    most, most_near, least_near = MOST_TERMS, MOST_TERMS, 0.0
    if total >= MANY_MESSAGES:
        always, least_rarity = 0 if recall else ALWAYS_COUNTED, max(LEAST_RARITY, math.log(total / COMMON))
        words = [word for rank, word in enumerate(words) if rank < always or word.rarity >= least_rarity]
        least_near = LEAST_RARITY_NEAR
        if for_recall:
            most, most_near = RECALL_MOST_TERMS, RECALL_MOST_NEAR
            least_near = max(least_near, math.log(total / COMMON_NEAR))
    skipped = counts.empty if scope.names_of_senders else {*counts.empty, Place.SENDER}
    around = words if len(words) > 1 else []  # one word's neighbours contain it themselves
    in_place = {
        Place.TEXT: [word for word in words if word.holders][:most],
        Place.SENDER: words[:most],
        # What no message contains is near none; but the words of a phrase may be there without following each other.
        Place.NEAR: [w for w in around if w.rarity >= least_near and (w.holders or len(w.term.words) > 1)][:most_near],
        Place.NOTE: words[:most],
        Place.ASKED: words[:most],
    }
    wanted = [_weighed(place, word) for place in Place if place not in skipped for word in in_place[place]]
    return _by_length(index, wanted, limit) if wanted else []


def _by_length(index: Lookup, wanted: Sequence[Weighed], limit: int | None) -> list[int]:
    """Returns the ids of the best messages. Of the first ones, a long message counts less than a short one with the same words, as in BM25: the
    long answers of an agent contain many words."""
    found = index.best(wanted, limit or MOST)
    first = found[:MEASURED]
    lengths = index.lengths([number for number, _ in first])
    usual = max(1.0, sum(lengths.values()) / max(1, len(lengths)))
    part = {number: 1 - LENGTH + LENGTH * max(1.0, lengths.get(number, 0) / usual) for number, _ in first}
    first.sort(key=lambda each: -each[1] / (1 + SATURATION * part[each[0]]))
    return [number for number, _ in (*first, *found[MEASURED:])]


def _rarity(total: int, holders: int) -> float:
    return math.log(1 + (max(total, holders) - holders + 0.5) / (holders + 0.5))


def _weighed(place: Place, word: _Word) -> Weighed:
    return Weighed(place, word.term, int(WEIGHTS[place] * word.rarity * 1_000_000))


def merged(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Merges two rankings by reciprocal rank fusion. Of equal ones, those of the first ranking come first."""
    scores: dict[int, float] = {}
    for ranking in (first, second):
        for place, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1 / (RANK_OFFSET + place)
    return sorted(scores, key=lambda number: -scores[number])
