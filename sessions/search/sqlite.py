"""The search index on SQLite: three FTS5 tables for messages that do not store their content (contentless).

`messages_fts` has each message's own words, stemmed, with positions, and its sender's name; `messages_scoped` its content words, its
sender's name and the content words of the messages around it, each with the namespace in front (`scoped_words.py`); `messages_words` its
content words unstemmed, for `prefix*`.
"""

import contextlib
import json
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from sqlalchemy import Connection, text

from sessions.search.query import (
    Both,
    Either,
    Entry,
    Mark,
    Node,
    Query,
    SearchScope,
    Term,
    Without,
    is_content,
    namespace_token,
    scoped,
    start_of,
    words,
)
from sessions.search.ranking import Counts, Place, Weighed, ranked

_ADD = (
    "INSERT INTO messages_fts(rowid, ns, sender, text) VALUES (?, ?, ?, ?)",
    "INSERT INTO messages_scoped(rowid, words) VALUES (?, ?)",
    "INSERT INTO messages_words(rowid, text) VALUES (?, ?)",
)
_REMOVE = (
    "INSERT INTO messages_fts(messages_fts, rowid, ns, sender, text) VALUES ('delete', ?, ?, ?, ?)",
    "INSERT INTO messages_scoped(messages_scoped, rowid, words) VALUES ('delete', ?, ?)",
    "INSERT INTO messages_words(messages_words, rowid, text) VALUES ('delete', ?, ?)",
)
_TABLES = ("messages_fts", "messages_scoped", "messages_words", "observations_fts")
_ERASE_PAGES, _MERGE_PAGES = 500, 100
_SPEAKER = "\ue000"
"""The first character of each word of a sender's name in the index. So a search for the name does not read all messages with that word."""


def add(conn: Connection, entries: Sequence[Entry]) -> None:
    _run(conn, _ADD, entries)


def remove(conn: Connection, entries: Sequence[Entry]) -> None:
    """Removes entries. They must be equal to those that were added: FTS5 tables without content need the old text to delete it."""
    _run(conn, _REMOVE, entries)


def _run(conn: Connection, statements: tuple[str, str, str], entries: Sequence[Entry]) -> None:
    if not entries:
        return
    own, by_namespace, written = statements
    names = [words(e.sender) for e in entries]
    conn.exec_driver_sql(
        own, [(e.message_id, e.ns, _as_speaker(name), e.text) for e, name in zip(entries, names, strict=True)]
    )
    conn.exec_driver_sql(
        by_namespace, [(e.message_id, _scoped(e, " ".join(name))) for e, name in zip(entries, names, strict=True)]
    )
    conn.exec_driver_sql(written, [(e.message_id, f"{e.ns} {e.words}") for e in entries])


def _scoped(entry: Entry, name: str) -> str:
    """Returns the words of the entry and of the sender's name, each with the namespace in front."""
    ns = entry.ns
    own, near = scoped(ns, Mark.TEXT, entry.words), scoped(ns, Mark.NEAR, entry.ctx)
    return f"{start_of(ns, Mark.ALL)} {own} {scoped(ns, Mark.SENDER, name)} {near}"


def _as_speaker(of: Iterable[str]) -> str:
    return " ".join(_SPEAKER + word for word in of)


_HASH_BYTES, _MANY_HASH_BYTES = 2**20, 2**25
"""Of new entries that FTS5 keeps in memory before it writes them as a segment: what it does by itself, and for very many entries."""


@contextlib.contextmanager
def filling(conn: Connection) -> Generator[None]:
    """Makes `add` quick for very many entries while the block lasts."""
    for size in (_MANY_HASH_BYTES, _HASH_BYTES):
        for table in _TABLES:
            conn.exec_driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('hashsize', {size})")  # noqa: S608  # one of ours
        if size == _MANY_HASH_BYTES:
            yield


def erase_step(conn: Connection) -> bool:
    """Merges segments of the index a little, which removes deleted words from the file. Returns True when there is more to merge."""
    more = [_merge(conn, table, -_ERASE_PAGES) for table in _TABLES]  # negative: all segments into one
    return any(more)


def merge_step(conn: Connection) -> bool:
    """Merges segments of equal size a little. Each write adds a segment, and a search looks for its words in every segment. Returns True
    when there is more to merge."""
    more = [_merge(conn, table, _MERGE_PAGES) for table in _TABLES]
    return any(more)


def _merge(conn: Connection, table: str, pages: int) -> bool:
    before = _changes(conn)
    conn.exec_driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('merge', {pages})")  # noqa: S608  # one of ours
    return _changes(conn) - before >= 2  # as FTS5 documents: fewer than two changes, nothing was left to merge


def _changes(conn: Connection) -> int:
    return int(conn.exec_driver_sql("SELECT total_changes()").scalar_one())


# --- finding ------------------------------------------------------------------------------------------------------------------


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
    token = None if scope.ns is None else namespace_token(scope.ns)
    terms = [term for term in query.terms() if not term.prefix]
    parameters: dict[str, object] = {"limit": limit, "source": source, "cut_off": cut_off}
    conditions: list[str] = []
    if query.literal and not (terms and isinstance(query.node, Term)):  # a phrase alone is found by ranking it
        conditions.append(f"m.id IN ({_algebra(query.node, token, parameters)})")
    if source is not None:
        conditions.append("s.source = :source")
    if cut_off is not None:
        conditions.append("m.id < :cut_off")
    if not terms:
        # Hits of a query of prefixes alone, newest first: prefixes are not ranked.
        where = " AND ".join(conditions)
        sql = f"SELECT m.id FROM messages m JOIN sessions s ON s.id = m.session_id WHERE {where} ORDER BY m.id DESC LIMIT :limit"  # noqa: S608
        return list(conn.scalars(text(sql), parameters))
    lookup, most = _SqliteLookup(conn, scope.ns), None if conditions else limit
    found = ranked(lookup, terms, scope, most, literal=query.literal, recall=recall)
    return _allowed(conn, found, conditions, parameters)[:limit] if conditions else found


def fetched(conn: Connection, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement without SQLAlchemy, which takes a third of the time of a recall."""
    return cast(sqlite3.Connection, conn.connection.driver_connection).execute(statement, values).fetchall()


_READ = (
    "SELECT m.id, m.role, m.sender, m.created_at, m.content, m.run_id, m.session_id, s.session_key, s.ns FROM json_each(:ids) hit"
    " CROSS JOIN messages m ON m.id = hit.value CROSS JOIN sessions s ON s.id = m.session_id"
)


def read(conn: Connection, found: Sequence[int]) -> Sequence[tuple[Any, ...]]:
    """Returns what is shown of these messages, in their order, and where they are: run, session, session key, namespace."""
    return fetched(conn, _READ, {"ids": json.dumps(found)})


def find_notes(conn: Connection, terms: Sequence[Term], ns: str, limit: int) -> list[int]:
    return _SqliteLookup(conn, ns).best_notes(terms, limit)


def _allowed(conn: Connection, found: list[int], conditions: list[str], parameters: dict[str, object]) -> list[int]:
    sql = (
        "SELECT m.id FROM json_each(:found) hit JOIN messages m ON m.id = hit.value"  # noqa: S608  # only our own words
        f" JOIN sessions s ON s.id = m.session_id WHERE {' AND '.join(conditions)} ORDER BY hit.key"
    )
    return list(conn.scalars(text(sql), {**parameters, "found": json.dumps(found)}))


_SOURCES = {"text": "messages_fts", "scoped": "messages_scoped", "notes": "observations_fts"}
"""The table in which the words of each list are looked up."""


def _counted(source: str) -> str:
    table = _SOURCES[source]
    holders = f"SELECT 1 FROM {table} WHERE {table} MATCH value LIMIT :most"  # noqa: S608  # our own words
    return f"SELECT key, (SELECT count(*) FROM ({holders})) FROM json_each(:{source})"  # noqa: S608  # our own words


def _scored(source: str) -> str:
    table = _SOURCES[source]
    return f"SELECT {table}.rowid AS id, w.value AS score FROM json_each(:{source}) w CROSS JOIN {table} WHERE {table} MATCH w.key"  # noqa: S608  # our own words


_NAMESPACES = "SELECT ns FROM sessions GROUP BY ns ORDER BY max(started_at) DESC LIMIT 500"
_ALL = "SELECT -1, (SELECT count(*) FROM messages)"
_ALL_OF_NAMESPACE = (
    "SELECT -1, (SELECT count(*) FROM (SELECT 1 FROM messages_scoped WHERE messages_scoped MATCH :all LIMIT :counted))"
)
_COUNT = f"{_counted('text')} UNION ALL {_counted('scoped')} UNION ALL "
_COUNT_ALL, _COUNT_IN_NAMESPACE = _COUNT + _ALL, _COUNT + _ALL_OF_NAMESPACE
_BEST = (
    f"WITH noted AS (SELECT id, sum(score) AS score FROM ({_scored('notes')}) GROUP BY id)"  # noqa: S608  # our own words
    f" SELECT id, sum(score) FROM ({_scored('text')} UNION ALL {_scored('scoped')} UNION ALL"
    " SELECT CAST(j.value AS INTEGER) AS id, max(n.score) AS score"
    " FROM noted n JOIN observations o ON o.id = n.id, json_each(o.src) j GROUP BY 1"
    ") hits GROUP BY id ORDER BY sum(score) DESC, id DESC LIMIT :most"
)
_LENGTHS = "SELECT m.id, length(m.content) FROM json_each(:ids) hit CROSS JOIN messages m ON m.id = hit.value"
_BEST_NOTES = (
    "SELECT observations_fts.rowid AS id FROM json_each(:words)"
    " CROSS JOIN observations_fts WHERE observations_fts MATCH value"
    " GROUP BY 1 ORDER BY count(*) DESC, 1 DESC LIMIT :most"
)


_MARKED = {
    Place.TEXT: ("scoped", Mark.TEXT),
    Place.SENDER: ("scoped", Mark.SENDER),
    Place.NEAR: ("scoped", Mark.NEAR),
    Place.NOTE: ("notes", Mark.NOTE),
    Place.ASKED: ("notes", Mark.ASKED),
}


class _SqliteLookup:
    """Implements `ranking.Lookup`. The SQL text does not depend on the words, so that SQLite prepares each statement only once."""

    def __init__(self, conn: Connection, ns: str | None) -> None:
        self._conn = conn
        self._token = "" if ns is None else namespace_token(ns)
        self._start = {mark: start_of(self._token, mark) for mark in Mark}

    @cached_property
    def _namespaces(self) -> Sequence[str]:
        """The namespaces whose neighbours are searched in a search over all of them."""
        return list(self._conn.exec_driver_sql(_NAMESPACES).scalars())

    def count(self, terms: Sequence[Term], most: int | None, most_messages: int | None) -> Counts:
        words: dict[str, dict[int, str]] = {"text": {}, "scoped": {}}
        for place, term in enumerate(terms):
            source, word = self._word(Place.TEXT, term)
            words[source][place] = word
        limits = {"most": -1 if most is None else most, "counted": -1 if most_messages is None else most_messages}
        everything = f'"{self._start[Mark.ALL]}"'
        values = {source: json.dumps(some) for source, some in words.items()} | limits | {"all": everything}
        found = fetched(self._conn, _COUNT_IN_NAMESPACE if self._token else _COUNT_ALL, values)
        counts = {int(key): number for key, number in found}
        return Counts(messages=counts.pop(-1), holders=[counts[place] for place in range(len(terms))])

    def best(self, wanted: Sequence[Weighed], limit: int) -> list[tuple[int, int]]:
        words: dict[str, dict[str, int]] = {source: {} for source in _SOURCES}
        for each in wanted:
            source, word = self._word(each.place, each.term)
            words[source][word] = each.score
        values = {source: json.dumps(some) for source, some in words.items()} | {"most": limit}
        return [(number, score) for number, score in fetched(self._conn, _BEST, values)]

    def lengths(self, found: Sequence[int]) -> Mapping[int, int]:
        return {number: length or 0 for number, length in fetched(self._conn, _LENGTHS, {"ids": json.dumps(found)})}

    def best_notes(self, terms: Sequence[Term], limit: int) -> list[int]:
        words = [self._word(place, term)[1] for place in (Place.NOTE, Place.ASKED) for term in terms]
        return list(self._conn.exec_driver_sql(_BEST_NOTES, {"words": json.dumps(words), "most": limit}).scalars())

    def _word(self, place: Place, term: Term) -> tuple[str, str]:
        """Returns the source for this place, and the FTS5 expression for the term."""
        if self._token and (place is not Place.TEXT or (len(term.words) == 1 and is_content(term.words[0]))):
            source, mark = _MARKED[place]
            return source, _together(term.words, self._start[mark])
        if place is Place.TEXT:
            # a phrase needs positions; stop words and the words of all namespaces are only here
            wall = f'ns : "{self._token}" AND ' if self._token else ""
            return "text", f"{wall}text : {_quoted(term)}"
        if place is Place.SENDER:
            return "text", f'sender : "{_as_speaker(term.words)}"'
        if place is Place.NEAR:
            starts = (start_of(namespace_token(ns), Mark.NEAR) for ns in self._namespaces)
            return "scoped", " OR ".join(f"({_together(term.words, start)})" for start in starts) or '""'
        source, mark = _MARKED[place]
        return source, _together(term.words, self._start[mark])


def _together(of: Sequence[str], start: str) -> str:
    return f'"{start}{of[0]}"' if len(of) == 1 else " AND ".join([f'"{start}{word}"' for word in of])


def _quoted(term: Term) -> str:
    return '"' + " ".join(term.words) + '"'


def _algebra(node: Node, ns: str | None, parameters: dict[str, object]) -> str:
    """Returns SQL for the ids of the messages that satisfy the tree. Prefixes and words are looked up in different tables."""
    match node:
        case Term():
            name = f"leaf{len(parameters)}"
            parameters[name] = _leaf(node, ns)
            table = "messages_words" if node.prefix else "messages_fts"
            return f"SELECT rowid FROM {table} WHERE {table} MATCH :{name}"  # noqa: S608  # our own words; the leaf is a parameter
        case Both(left, right):
            operator = "INTERSECT"
        case Either(left, right):
            operator = "UNION"
        case Without(left, right):
            operator = "EXCEPT"
    return (
        f"SELECT * FROM ({_algebra(left, ns, parameters)}) {operator} SELECT * FROM ({_algebra(right, ns, parameters)})"  # noqa: S608
    )


def _leaf(term: Term, ns: str | None) -> str:
    if term.prefix:
        own = f'"{term.words[0]}" *'
        return own if ns is None else f'"{ns}" AND {own}'
    own = f"text : {_quoted(term)}"
    return own if ns is None else f'ns : "{ns}" AND {own}'
