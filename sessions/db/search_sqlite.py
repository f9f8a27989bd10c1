"""The search index on SQLite: three FTS5 tables without content.

`messages_fts` knows each message's own words, stemmed, with their positions, and its speaker's name; `messages_near` its
neighbours' content words; `messages_words` its content words as they were written, for `prefix*`.

`messages_near` also holds the content words of message, neighbours and speaker's name once more, each made one with its namespace: to
look such a word up costs as much as it has holders there, however much was said there and elsewhere, and no other namespace can answer.
"""

import json
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, text

from sessions.db.index_entry import Entry
from sessions.db.query import Both, Either, Node, Query, Term, Without, is_stop_word, namespace_token, words
from sessions.db.ranking import COUNTED, Counts, Place, Weighed, ranked
from sessions.db.scoped_words import Mark, scoped, start_of

_ADD = (
    "INSERT INTO messages_fts(rowid, ns, sender, text) VALUES (?, ?, ?, ?)",
    "INSERT INTO messages_near(rowid, ctx) VALUES (?, ?)",
    "INSERT INTO messages_words(rowid, text) VALUES (?, ?)",
)
_REMOVE = (
    "INSERT INTO messages_fts(messages_fts, rowid, ns, sender, text) VALUES ('delete', ?, ?, ?, ?)",
    "INSERT INTO messages_near(messages_near, rowid, ctx) VALUES ('delete', ?, ?)",
    "INSERT INTO messages_words(messages_words, rowid, text) VALUES ('delete', ?, ?)",
)
_TABLES = ("messages_fts", "messages_near", "messages_words", "observations_fts")
_MERGE_PAGES = 500
_SPEAKER = "\ue000"
"""Begins each word of a speaker's name, so that looking for it does not walk through all messages that contain the word."""
_MARKS = {
    Place.TEXT: Mark.OWN,
    Place.NEAR: Mark.NEAR,
    Place.SENDER: Mark.SENDER,
    Place.NOTE: Mark.NOTE,
    Place.ASKED: Mark.ASKED,
}


def add(conn: Connection, entries: Sequence[Entry]) -> None:
    _run(conn, _ADD, entries)


def remove(conn: Connection, entries: Sequence[Entry]) -> None:
    """The entries must be exactly what was added."""
    _run(conn, _REMOVE, entries)


def _run(conn: Connection, statements: tuple[str, str, str], entries: Sequence[Entry]) -> None:
    if not entries:
        return
    own, near, written = statements
    conn.exec_driver_sql(own, [(e.message_id, e.ns, _as_speaker(words(e.sender)), e.text) for e in entries])
    conn.exec_driver_sql(near, [(e.message_id, _near(e)) for e in entries])
    conn.exec_driver_sql(written, [(e.message_id, f"{e.ns} {e.words}") for e in entries])


def _as_speaker(of: Iterable[str]) -> str:
    return " ".join(_SPEAKER + word for word in of)


def _near(entry: Entry) -> str:
    own, near = scoped(entry.ns, Mark.OWN, entry.words), scoped(entry.ns, Mark.NEAR, entry.ctx)
    return " ".join((entry.ns, entry.ctx, own, near, scoped(entry.ns, Mark.SENDER, " ".join(words(entry.sender)))))


def erase_step(conn: Connection) -> bool:
    """Merging all segments into one is what drops the deleted words."""
    more = [_merge(conn, table) for table in _TABLES]
    return any(more)


def _merge(conn: Connection, table: str) -> bool:
    before = _changes(conn)
    conn.exec_driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('merge', {-_MERGE_PAGES})")  # noqa: S608  # one of ours
    return _changes(conn) - before >= 2  # as FTS5 documents: fewer than two changes, nothing was left to merge


def _changes(conn: Connection) -> int:
    return int(conn.exec_driver_sql("SELECT total_changes()").scalar_one())


# --- finding ------------------------------------------------------------------------------------------------------------------


def find(
    conn: Connection,
    query: Query,
    ns: str | None,
    source: str | None,
    limit: int,
    cut_off: int | None,
    least: int = 2,
) -> list[int]:
    token = None if ns is None else namespace_token(ns)
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
        return _newest(conn, conditions, parameters)
    found = ranked(_SqliteLookup(conn, token), terms, None if conditions else limit, literal=query.literal, least=least)
    return _allowed(conn, found, conditions, parameters)[:limit] if conditions else found


def find_notes(conn: Connection, terms: Sequence[Term], ns: str, limit: int) -> list[int]:
    return _SqliteLookup(conn, ns).best_notes(terms, limit)


def _allowed(conn: Connection, found: list[int], conditions: list[str], parameters: dict[str, object]) -> list[int]:
    sql = (
        "SELECT m.id FROM json_each(:found) hit JOIN messages m ON m.id = hit.value"  # noqa: S608  # only our own words
        f" JOIN sessions s ON s.id = m.session_id WHERE {' AND '.join(conditions)} ORDER BY hit.key"
    )
    return list(conn.scalars(text(sql), {**parameters, "found": json.dumps(found)}))


_COUNTED = (
    "SELECT key, (SELECT count(*) FROM (SELECT 1 FROM {0} WHERE {0} MATCH value LIMIT :most)) FROM json_each(:{0})"
)
_ALL = "SELECT -1, (SELECT count(*) FROM messages)"
_ALL_OF_NAMESPACE = (
    "SELECT -1, (SELECT count(*) FROM (SELECT 1 FROM messages_near WHERE messages_near MATCH :ns LIMIT :counted))"
)
_COUNT = f"{_COUNTED.format('messages_near')} UNION ALL {_COUNTED.format('messages_fts')} UNION ALL "
_SCORES = "{0}_scores(query, score) AS MATERIALIZED (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:{0}))"
_SCORED = "SELECT {0}.rowid AS id, score FROM {0}_scores CROSS JOIN {0} WHERE {0} MATCH query"
_SEARCHED = ("messages_near", "messages_fts", "observations_fts")
_BEST = (
    f"WITH {', '.join(map(_SCORES.format, _SEARCHED))},"  # noqa: S608  # our own words
    f" noted AS (SELECT id, sum(score) AS score FROM ({_SCORED.format('observations_fts')}) GROUP BY id)"
    " SELECT id FROM ("
    f"{_SCORED.format('messages_near')} UNION ALL {_SCORED.format('messages_fts')} UNION ALL"
    " SELECT CAST(j.value AS INTEGER) AS id, max(n.score) AS score"
    " FROM noted n JOIN observations o ON o.id = n.id, json_each(o.src) j GROUP BY 1"
    ") hits GROUP BY id ORDER BY sum(score) DESC, id DESC LIMIT :most"
)
_BEST_NOTES = (
    "SELECT observations_fts.rowid AS id FROM json_each(:queries) CROSS JOIN observations_fts WHERE observations_fts MATCH value"
    " GROUP BY 1 ORDER BY count(*) DESC, 1 DESC LIMIT :most"
)


class _SqliteLookup:
    """See `ranking.Lookup`. The statements are always the same ones, whatever is looked up, so that they are prepared only once."""

    def __init__(self, conn: Connection, ns: str | None) -> None:
        self._conn, self._ns = conn, ns

    def count(self, terms: Sequence[Term], most: int | None) -> Counts:
        queries: dict[str, dict[int, str]] = {"messages_near": {}, "messages_fts": {}}
        for place, term in enumerate(terms):
            table, query = self._query(Place.TEXT, term)
            queries[table][place] = query
        values = {table: json.dumps(some) for table, some in queries.items()}
        limits = {"most": -1, "counted": -1} if most is None else {"most": most, "counted": COUNTED}
        everything = _ALL if self._ns is None else _ALL_OF_NAMESPACE
        found = self._conn.exec_driver_sql(_COUNT + everything, {**values, **limits, "ns": f'"{self._ns}"'})
        counts = {int(key): number for key, number in found.all()}
        return Counts(messages=counts.pop(-1), holders=[counts[place] for place in range(len(terms))])

    def best(self, wanted: Sequence[Weighed], limit: int) -> list[int]:
        queries: dict[str, list[tuple[str, float]]] = {table: [] for table in _SEARCHED}
        for each in wanted:
            table, query = self._query(each.place, each.term)
            queries[table].append((query, each.score))
        values = {table: json.dumps(some) for table, some in queries.items()}
        return list(self._conn.exec_driver_sql(_BEST, {**values, "most": limit}).scalars().all())

    def best_notes(self, terms: Sequence[Term], limit: int) -> list[int]:
        queries = [self._query(place, term)[1] for place in (Place.NOTE, Place.ASKED) for term in terms]
        return list(self._conn.exec_driver_sql(_BEST_NOTES, {"queries": json.dumps(queries), "most": limit}).scalars())

    def _query(self, place: Place, term: Term) -> tuple[str, str]:
        """The table that knows the word in this place, and what to ask it."""
        match place:
            case Place.NOTE | Place.ASKED:
                return "observations_fts", _together(term.words, start_of(self._ns or "", _MARKS[place]))
            case _ if self._ns is not None and (place is not Place.TEXT or _is_content_word(term)):
                return "messages_near", _together(term.words, start_of(self._ns, _MARKS[place]))
            case Place.TEXT:
                wall = "" if self._ns is None else f'ns : "{self._ns}" AND '
                return "messages_fts", f"{wall}text : {_quoted(term)}"
            case Place.SENDER:
                return "messages_fts", f'sender : "{_as_speaker(term.words)}"'
            case Place.NEAR:
                return "messages_near", _together(term.words)


def _is_content_word(term: Term) -> bool:
    return len(term.words) == 1 and not is_stop_word(term.words[0])


def _together(of: Iterable[str], start: str = "") -> str:
    return " AND ".join(f'"{start}{word}"' for word in of)


def _newest(conn: Connection, conditions: list[str], parameters: dict[str, object]) -> list[int]:
    """Only prefixes: there is nothing to rank by, so the newest come first."""
    where = " AND ".join(conditions)
    sql = f"SELECT m.id FROM messages m JOIN sessions s ON s.id = m.session_id WHERE {where} ORDER BY m.id DESC LIMIT :limit"  # noqa: S608
    return list(conn.scalars(text(sql), parameters))


def _quoted(term: Term) -> str:
    return '"' + " ".join(term.words) + '"'


def _algebra(node: Node, ns: str | None, parameters: dict[str, object]) -> str:
    """The set of messages that satisfy the tree, as SQL; each leaf is looked up in the index that understands it."""
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
