"""Which messages hold the words of a query, best first: the same on both databases, for the command line, recall and the agent's tool.

Each word counts by its rarity: within the namespace that is searched, so that nothing is told of others. It counts most in what was
said, less in what was said around it; the name of who said it counts double. Observations count for the messages that they are from.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from sqlalchemy import Connection

from sessions.db.query import Term

MOST = 100_000
TELLING, MOST_TERMS = 0.7, 8
HOLDERS = 500
"""In a long past, words that more messages than these hold count only where there are few others: so a search takes no longer there."""
RARE = 1.5
"""Only rarer words count for the neighbours of what holds them: others stand near nearly everything."""
MANY = 200
"""Among so many messages, a word that half of them hold says nothing: it counts only where there are few others."""
Part = tuple[str, tuple[object, ...]]
"""SQL with its parameters."""


class Place(StrEnum):
    """Where a word may stand."""

    TEXT = "text"
    SENDER = "sender"
    NEAR = "near"
    NOTE = "note"
    ASKED = "asked"


WEIGHTS = {Place.TEXT: 1.0, Place.SENDER: 1.8, Place.NEAR: 0.75, Place.NOTE: 0.6, Place.ASKED: 1.2}
"""Chosen with `bench/recall.py`. A note has mostly the words of its messages; the questions that it answers have others."""


class Places(Protocol):
    """How a database looks words up. `everything`: counts the messages. `sources`: from observations (`noted`) to their messages."""

    @property
    def everything(self) -> Part: ...

    @property
    def sources(self) -> str: ...

    @property
    def number(self) -> str:
        """A parameter that is a number."""
        ...

    def holders(self, place: Place, *terms: Term) -> Part:
        """The ids of what holds one of these words there, as SQL with its parameters."""
        ...


def ranked(
    conn: Connection, places: Places, terms: Sequence[Term], limit: int | None, *, literal: bool = False, least: int = 2
) -> list[int]:
    """Ids of messages. `literal`: only what was said counts. `least`: how many terms count however common they are."""
    most = HOLDERS + 1 if least == 0 and not literal else None  # a word that more hold does not count then
    total, rarities, present = _rarities(conn, places, terms, most)
    if not literal:
        telling = max(TELLING, math.log(max(1.0, total / HOLDERS)))
        terms, rarities = _telling(terms, rarities, least if total >= MANY else MOST_TERMS, telling)
    if not terms:
        return []
    alone = len(terms) == 1  # one word gains nothing from neighbours: they contain it themselves
    others = [*([Place.SENDER] if Place.SENDER in present else []), *([] if alone else [Place.NEAR])]
    wanted = [Place.TEXT] if literal else [Place.TEXT, *others]
    weighed = list(zip(terms, rarities, strict=True))
    said = [
        _scored(places, of, *each)
        for of in wanted
        for each in weighed
        if of is not Place.NEAR or each[1] >= RARE or total < MANY
    ]
    of_notes = [place for place in (Place.NOTE, Place.ASKED) if place in present and not literal]
    noted = [_scored(places, place, *each) for place in of_notes for each in weighed]
    tables, together = "", " UNION ALL ".join(sql for sql, _ in said)
    if noted:
        notes = " UNION ALL ".join(sql for sql, _ in noted)
        tables = f"WITH noted AS (SELECT id, sum(score) AS score FROM ({notes}) a GROUP BY id)"  # noqa: S608  # our own words
        together += f" UNION ALL SELECT id, max(score) AS score FROM ({places.sources}) b GROUP BY id"  # noqa: S608  # the same
    sql = (
        f"{tables} SELECT id FROM ({together}) hits GROUP BY id ORDER BY sum(score) DESC, id DESC LIMIT {limit or MOST}"  # noqa: S608  # the same
    )
    return list(conn.exec_driver_sql(sql, _values([*noted, *said])).scalars())


def _telling(
    terms: Sequence[Term], rarities: Sequence[float], least: int, telling: float
) -> tuple[Sequence[Term], Sequence[float]]:
    """The rarest, without words that stand nearly everywhere, where there are others: those tell nothing and take longest."""
    order = sorted(range(len(terms)), key=lambda i: -rarities[i])[:MOST_TERMS]
    kept = [i for place, i in enumerate(order) if place < least or rarities[i] >= telling]
    return [terms[i] for i in kept], [rarities[i] for i in kept]


def _scored(places: Places, place: Place, term: Term, rarity: float) -> Part:
    """The score is a parameter: so the statement is the same for the next search, and is not prepared again."""
    sql, values = places.holders(place, term)
    score = round(WEIGHTS[place] * rarity, 6)
    return f"SELECT id, {places.number} AS score FROM ({sql}) e", (score, *values)  # noqa: S608  # our own words


def _values(parts: Sequence[Part]) -> tuple[object, ...]:
    return tuple(value for _, values in parts for value in values)


def ranked_notes(conn: Connection, places: Places, terms: Sequence[Term], limit: int) -> list[int]:
    """Ids of observations, those that hold most of the terms first, the newest first among equals."""
    parts = [places.holders(place, term) for place in (Place.NOTE, Place.ASKED) for term in terms]
    sql = " UNION ALL ".join(one for one, _ in parts)
    sql = f"SELECT id FROM ({sql}) f GROUP BY id ORDER BY count(*) DESC, id DESC LIMIT {limit}"  # noqa: S608  # our own words
    return list(conn.exec_driver_sql(sql, _values(parts)).scalars())


def _rarities(
    conn: Connection, places: Places, terms: Sequence[Term], most: int | None
) -> tuple[int, list[float], set[Place]]:
    """How many messages there are, how rare each word is among them, and the places that hold any of the words. `most`: counts no
    further."""
    counts = [places.everything, *(_counted(*places.holders(Place.TEXT, term), most) for term in terms)]
    elsewhere = [Place.SENDER, Place.NOTE, Place.ASKED]  # words of messages stand near others, as a rule
    counts += [_exists(*places.holders(place, *terms)) for place in elsewhere]
    sql = " UNION ALL ".join(
        f"SELECT {number} AS term, ({one}) AS found" for number, (one, _) in enumerate(counts)
    )  # our own words
    rows = conn.exec_driver_sql(sql, _values(counts)).all()
    total, *found = [row[1] for row in sorted(rows, key=lambda row: row[0])]
    rare = [math.log(1 + (max(total, one) - one + 0.5) / (one + 0.5)) for one in found[: len(terms)]]
    return total, rare, {place for place, any_there in zip(elsewhere, found[len(terms) :], strict=True) if any_there}


def _exists(sql: str, values: tuple[object, ...]) -> Part:
    return f"SELECT CASE WHEN EXISTS ({sql}) THEN 1 ELSE 0 END", values  # our own words


def _counted(sql: str, values: tuple[object, ...], most: int | None) -> Part:
    end = "" if most is None else f" LIMIT {most}"
    return f"SELECT count(*) FROM ({sql}{end}) d", values  # noqa: S608  # our own words
