"""The search index on SQLite: three FTS5 tables without content.

`messages_fts` knows each message's own words, stemmed, with their positions, and its speaker's name; `messages_near` its
neighbours' content words; `messages_words` its content words as they were written, for `prefix*`.
"""

import json
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, text

from sessions.db.index_entry import Entry
from sessions.db.query import Both, Either, Node, Query, Term, Without, namespace_token, words
from sessions.db.ranking import Place, ranked, ranked_notes

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
FEW = 1_000
"""So many holders of a word are looked at one by one."""
MANY = 1_000
"""Among fewer messages it is quickest to walk through those of the namespace."""
_SPEAKER = "\ue000"
"""Begins each word of a speaker's name, so that looking for it does not walk through all messages that contain the word."""


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
    conn.exec_driver_sql(near, [(e.message_id, f"{e.ns} {e.ctx}") for e in entries])
    conn.exec_driver_sql(written, [(e.message_id, f"{e.ns} {e.words}") for e in entries])


def _as_speaker(of: Iterable[str]) -> str:
    return " ".join(_SPEAKER + word for word in of)


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
    few = _few(conn, terms) if ns is not None else frozenset[Term]()
    found = ranked(
        conn, _Places(token, ns, few), terms, None if conditions else limit, literal=query.literal, least=least
    )
    return _allowed(conn, found, conditions, parameters)[:limit] if conditions else found


def find_notes(conn: Connection, terms: Sequence[Term], ns: str, limit: int) -> list[int]:
    return ranked_notes(conn, _Places(ns), terms, limit)


def _allowed(conn: Connection, found: list[int], conditions: list[str], parameters: dict[str, object]) -> list[int]:
    sql = (
        "SELECT m.id FROM json_each(:found) hit JOIN messages m ON m.id = hit.value"  # noqa: S608  # only our own words
        f" JOIN sessions s ON s.id = m.session_id WHERE {' AND '.join(conditions)} ORDER BY hit.key"
    )
    return list(conn.scalars(text(sql), {**parameters, "found": json.dumps(found)}))


def _few(conn: Connection, terms: Sequence[Term]) -> frozenset[Term]:
    """The words that few messages hold, in all namespaces together; none while there are not many messages. Stop words, which are not
    among the words of neighbours, are never of them."""
    if (conn.exec_driver_sql("SELECT max(id) FROM messages").scalar() or 0) < MANY:
        return frozenset()
    counted = f"(SELECT count(*) FROM ({_FTS.format('messages_near')} LIMIT {FEW + 1}))"  # noqa: S608  # our own words
    sql = " UNION ALL ".join(
        f"SELECT {place} WHERE {counted} BETWEEN 1 AND {FEW}" for place in range(len(terms))
    )  # our own words
    found: list[int] = list(conn.exec_driver_sql(sql, tuple(_together(term.words) for term in terms)).scalars())
    return frozenset(terms[place] for place in found)


class _Places:
    """See `ranking.Places`. Words of `few` are looked up first and then checked for their namespace, which costs as much as they have
    holders; for others the index walks through all messages of the namespace."""

    number = "?"
    sources = "SELECT CAST(j.value AS INTEGER) AS id, n.score FROM noted n JOIN observations o ON o.id = n.id, json_each(o.src) j"

    def __init__(self, ns: str | None, plain_ns: str | None = None, few: frozenset[Term] = frozenset()) -> None:
        self._plain_ns, self._few = plain_ns, few
        self._wall = "" if ns is None else f'ns : "{ns}" AND '
        self._near = () if ns is None else (ns,)
        self.everything = (
            ("SELECT count(*) FROM messages", ())
            if ns is None
            else ("SELECT count(*) FROM messages_near WHERE messages_near MATCH ?", (f'"{ns}"',))
        )

    def holders(self, place: Place, *terms: Term) -> tuple[str, tuple[object, ...]]:
        match place:
            case Place.TEXT if self._few.issuperset(terms):
                return _OF_NAMESPACE.format("messages_fts"), (f"text : {_any(map(_quoted, terms))}", self._plain_ns)
            case Place.NEAR if self._few.issuperset(terms):
                return _OF_NAMESPACE.format("messages_near"), (
                    _any(_together(term.words) for term in terms),
                    self._plain_ns,
                )
            case Place.TEXT:
                return _FTS.format("messages_fts"), (f"{self._wall}text : {_any(map(_quoted, terms))}",)
            case Place.SENDER:
                named = (f'"{_as_speaker(term.words)}"' for term in terms)
                return _FTS.format("messages_fts"), (f"{self._wall}sender : {_any(named)}",)
            case Place.NEAR:
                near = (_together((*self._near, *term.words)) for term in terms)
                return _FTS.format("messages_near"), (_any(near),)
            case Place.NOTE:
                return _FTS.format("observations_fts"), (f"{self._wall}text : {_any(map(_quoted, terms))}",)
            case Place.ASKED:
                return _FTS.format("observations_fts"), (f"{self._wall}asked : {_any(map(_quoted, terms))}",)


def _any(of: Iterable[str]) -> str:
    return f"({' OR '.join(of)})"


def _together(of: Iterable[str]) -> str:
    return " AND ".join(f'"{word}"' for word in of)


_FTS = "SELECT rowid AS id FROM {0} WHERE {0} MATCH ?"
_OF_NAMESPACE = (
    "SELECT m.id AS id FROM {0} CROSS JOIN messages m ON m.id = {0}.rowid CROSS JOIN sessions s ON s.id = m.session_id"
    " WHERE {0} MATCH ? AND s.ns = ?"
)


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
