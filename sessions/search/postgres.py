"""The search index on PostgreSQL: one row per message with a stemmed and an unstemmed tsvector."""

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, text

from sessions.db.schema import message_search
from sessions.search.query import Both, Either, Entry, Node, Query, SearchScope, Term, Without, namespace_token, words
from sessions.search.ranking import Counts, Place, Weighed, ranked

_ADD = """
INSERT INTO message_search (message_id, ns, stems, words)
SELECT id, ns, setweight(to_tsvector('hermes', sender), 'A') || setweight(to_tsvector('hermes', own), 'B')
    || setweight(to_tsvector('hermes', ctx), 'C'), to_tsvector('simple', own)
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[]) AS entry(id, ns, sender, own, ctx)
"""
_DEFINITIONS = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'message_search' AND indexname <> 'message_search_pkey'"


def add(conn: Connection, entries: Sequence[Entry]) -> None:
    if entries:
        conn.exec_driver_sql(_ADD, tuple(map(list, zip(*map(_plain, entries), strict=True))))


def _plain(entry: Entry) -> tuple[object, ...]:
    """Returns the column values of an entry with words alone: PostgreSQL's parser would treat addresses, paths and numbers in its own way."""
    return entry.message_id, entry.ns, *(" ".join(words(of)) for of in (entry.sender, entry.text, entry.ctx))


@contextlib.contextmanager
def filling(conn: Connection) -> Generator[None]:
    """Makes `add` quick for very many entries while the block lasts: the indexes of the table are made anew after it."""
    indexes = conn.exec_driver_sql(_DEFINITIONS).all()
    for name, _ in indexes:
        conn.exec_driver_sql(f"DROP INDEX {name}")
    yield
    conn.exec_driver_sql("SET LOCAL maintenance_work_mem = '512MB'")
    for _, definition in indexes:
        conn.exec_driver_sql(definition)


def remove(conn: Connection, entries: Sequence[Entry]) -> None:
    conn.execute(delete(message_search).where(message_search.c.message_id.in_([e.message_id for e in entries])))


def erase_step(conn: Connection) -> bool:  # noqa: ARG001  # the same functions as on SQLite
    return False


def merge_step(conn: Connection) -> bool:  # noqa: ARG001  # autovacuum does it
    return False


def find(
    conn: Connection,
    query: Query,
    scope: SearchScope,
    source: str | None,
    limit: int,
    cut_off: int | None,
    *,
    recall: bool = False,
) -> list[int]:
    ns = None if scope.ns is None else namespace_token(scope.ns)
    terms = [term for term in query.terms() if not term.prefix]
    parameters: dict[str, object] = {"limit": limit, "ns": ns, "source": source, "cut_off": cut_off}
    conditions: list[str] = []
    if query.literal:
        conditions.append(_algebra(query.node, "B", parameters))
        if ns is not None:
            conditions.append("i.ns = :ns")
    if source is not None:
        conditions.append("s.source = :source")
    if cut_off is not None:
        conditions.append("m.id < :cut_off")
    if not terms:
        # Hits of a query of prefixes alone, newest first: prefixes are not ranked.
        sql = f"SELECT m.id FROM {_FROM} WHERE {' AND '.join(conditions)} ORDER BY m.id DESC LIMIT :limit"  # noqa: S608  # our own words
        return list(conn.scalars(text(sql), parameters))
    lookup, most = _PostgresLookup(conn, ns), None if conditions else limit
    found = ranked(lookup, terms, scope, most, literal=query.literal, recall=recall)
    return _allowed(conn, found, conditions, parameters)[:limit] if conditions else found


_FROM = "message_search i JOIN messages m ON m.id = i.message_id JOIN sessions s ON s.id = m.session_id"


_READ = (
    "SELECT m.id, m.role, m.sender, m.created_at, m.content, m.run_id, m.session_id, s.session_key, s.ns FROM messages m"
    " JOIN sessions s ON s.id = m.session_id WHERE m.id = ANY(%s)"
)


def read(conn: Connection, found: Sequence[int]) -> Sequence[tuple[Any, ...]]:
    """As on SQLite."""
    rows = {row[0]: tuple(row) for row in conn.exec_driver_sql(_READ, (list(found),))}
    return [rows[number] for number in found if number in rows]


def find_notes(conn: Connection, terms: Sequence[Term], ns: str, limit: int) -> list[int]:
    return _PostgresLookup(conn, namespace_token(ns)).best_notes(terms, limit)


def _allowed(conn: Connection, found: list[int], conditions: list[str], parameters: dict[str, object]) -> list[int]:
    sql = (
        f"SELECT m.id FROM {_FROM} JOIN unnest(CAST(:found AS bigint[])) WITH ORDINALITY hit(id, place) ON hit.id = m.id"  # noqa: S608  # our own words
        f" WHERE {' AND '.join(conditions)} ORDER BY hit.place"
    )
    return list(conn.scalars(text(sql), {**parameters, "found": found}))


_Part = tuple[str, tuple[object, ...]]
"""SQL with its parameters."""


class _PostgresLookup:
    """Implements `ranking.Lookup`."""

    def __init__(self, conn: Connection, ns: str | None) -> None:
        self._conn = conn
        self._wall = "" if ns is None else " AND ns = %s"
        self._of: tuple[object, ...] = () if ns is None else (ns,)

    def count(self, terms: Sequence[Term], most: int | None, most_messages: int | None) -> Counts:
        """Counts as `ranking.Lookup` says. For places other than the text it first checks whether any of the words is there at all, because each
        word costs a query plan."""
        everything = f"SELECT message_id FROM message_search WHERE true{self._wall}", self._of  # noqa: S608  # our own words
        counts = [_counted(*everything, most_messages)]
        counts += [_counted(*self._holders(Place.TEXT, term), most) for term in terms]
        elsewhere = [Place.SENDER, Place.NOTE, Place.ASKED]  # words of messages stand near others, as a rule
        counts += [_exists(*self._holders(place, *terms)) for place in elsewhere]
        # Made of our own words; what is searched for goes in as values.
        sql = " UNION ALL ".join(f"SELECT {number} AS term, ({one}) AS found" for number, (one, _) in enumerate(counts))
        rows = self._conn.exec_driver_sql(sql, _values(counts)).all()
        total, *found = [row[1] for row in sorted(rows, key=lambda row: row[0])]
        there = zip(elsewhere, found[len(terms) :], strict=True)
        return Counts(
            messages=total, holders=found[: len(terms)], empty=frozenset(place for place, any_of in there if not any_of)
        )

    def best(self, wanted: Sequence[Weighed], limit: int) -> list[tuple[int, int]]:
        said, noted = [
            [self._scored(each) for each in wanted if (each.place in {Place.NOTE, Place.ASKED}) is of_notes]
            for of_notes in (False, True)
        ]
        tables, found = "", [sql for sql, _ in said]
        if noted:
            notes = " UNION ALL ".join(sql for sql, _ in noted)
            tables = f"WITH noted AS (SELECT id, sum(score) AS score FROM ({notes}) a GROUP BY id)"  # noqa: S608  # our own words
            found.append(_OF_NOTES)
        together = " UNION ALL ".join(found)
        sql = f"{tables} SELECT id, sum(score) FROM ({together}) hits GROUP BY id ORDER BY sum(score) DESC, id DESC LIMIT {limit}"  # noqa: S608  # the same
        rows = self._conn.exec_driver_sql(sql, _values([*noted, *said]))
        return [(number, int(score)) for number, score in rows]

    def lengths(self, found: Sequence[int]) -> Mapping[int, int]:
        return {row[0]: row[1] or 0 for row in self._conn.exec_driver_sql(_LENGTHS, (list(found),))}

    def best_notes(self, terms: Sequence[Term], limit: int) -> list[int]:
        parts = [self._holders(place, term) for place in (Place.NOTE, Place.ASKED) for term in terms]
        sql = " UNION ALL ".join(one for one, _ in parts)
        sql = f"SELECT id FROM ({sql}) f GROUP BY id ORDER BY count(*) DESC, id DESC LIMIT {limit}"  # noqa: S608  # our own words
        return list(self._conn.exec_driver_sql(sql, _values(parts)).scalars())

    def _scored(self, each: Weighed) -> _Part:
        sql, values = self._holders(each.place, each.term)
        return f"SELECT id, CAST(%s AS double precision) AS score FROM ({sql}) e", (each.score, *values)  # noqa: S608  # our own words

    def _holders(self, place: Place, *terms: Term) -> _Part:
        """Returns SQL for the ids of the messages with one of these words in this place."""
        together = " & " if place is Place.NEAR else " <-> "  # neighbours' words stand there once each, in no order
        wanted = (" | ".join(f"({_phrase(term, _WEIGHTS[place], together)})" for term in terms), *self._of)
        return f"{_NOTES if place in {Place.NOTE, Place.ASKED} else _MESSAGES}{self._wall}", wanted


def _values(parts: Sequence[_Part]) -> tuple[object, ...]:
    return tuple(value for _, values in parts for value in values)


def _exists(sql: str, values: tuple[object, ...]) -> _Part:
    return f"SELECT CASE WHEN EXISTS ({sql}) THEN 1 ELSE 0 END", values  # our own words


def _counted(sql: str, values: tuple[object, ...], most: int | None) -> _Part:
    end = "" if most is None else f" LIMIT {most}"
    return f"SELECT count(*) FROM ({sql}{end}) d", values  # noqa: S608  # our own words


_OF_NOTES = (
    "SELECT CAST(j.value AS bigint) AS id, max(n.score) AS score FROM noted n JOIN observations o ON o.id = n.id,"
    " jsonb_array_elements_text(CAST(o.src AS jsonb)) j(value) GROUP BY 1"
)
_LENGTHS = "SELECT id, length(content) FROM messages WHERE id = ANY(%s)"
_WEIGHTS = {Place.SENDER: "A", Place.TEXT: "B", Place.NEAR: "C", Place.NOTE: "B", Place.ASKED: "C"}
_MESSAGES = "SELECT message_id AS id FROM message_search WHERE stems @@ to_tsquery('hermes', %s)"
_NOTES = "SELECT observation_id AS id FROM observation_search WHERE stems @@ to_tsquery('hermes', %s)"


def _algebra(node: Node, weights: str, parameters: dict[str, object]) -> str:
    match node:
        case Term():
            name = f"leaf{len(parameters)}"
            if node.prefix:
                parameters[name] = f"'{node.words[0]}':*"
                return f"i.words @@ to_tsquery('simple', :{name})"
            parameters[name] = _phrase(node, weights)
            return f"i.stems @@ to_tsquery('hermes', :{name})"
        case Both(left, right):
            operator = "AND"
        case Either(left, right):
            operator = "OR"
        case Without(left, right):
            operator = "AND NOT"
    return f"({_algebra(left, weights, parameters)} {operator} {_algebra(right, weights, parameters)})"


def _phrase(term: Term, weights: str, together: str = " <-> ") -> str:
    label = f":{weights}" if weights else ""
    return together.join(f"'{word}'{label}" for word in term.words)
