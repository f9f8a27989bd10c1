"""The search index on SQLite: three FTS5 tables without content.

`messages_fts` knows each message's own words, stemmed, with their positions, and its speaker's name; `messages_near` its
neighbours' content words; `messages_words` its content words as they were written, for `prefix*`.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from sqlalchemy import Connection, CursorResult, text

from sessions.db.index_entry import Entry
from sessions.db.query import Both, Either, Node, Query, Term, Without, words

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
_TABLES = ("messages_fts", "messages_near", "messages_words")
_MERGE_PAGES = 500
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
    conn: Connection, query: Query, ns: str | None, source: str | None, limit: int, cut_off: int | None
) -> list[int]:
    terms = [term for term in query.terms() if not term.prefix]
    parameters: dict[str, object] = {"limit": limit, "source": source, "cut_off": cut_off}
    conditions: list[str] = []
    if query.literal and not (terms and isinstance(query.node, Term)):  # a phrase alone is found by ranking it
        conditions.append(f"m.id IN ({_algebra(query.node, ns, parameters)})")
    if source is not None:
        conditions.append("s.source = :source")
    if cut_off is not None:
        conditions.append("m.id < :cut_off")
    if not terms:
        return _newest(conn, conditions, parameters)
    if ns is None:
        return _ranked(conn, terms, conditions, parameters, speakers=not query.literal)
    scores = _scores(conn, terms, ns, literal=query.literal)
    found = _allowed(conn, list(scores), conditions, parameters) if conditions else list(scores)
    return sorted(found, key=lambda message: (-scores[message], -message))[:limit]


def _allowed(conn: Connection, found: list[int], conditions: list[str], parameters: dict[str, object]) -> list[int]:
    sql = (
        "SELECT m.id FROM json_each(:found) hit JOIN messages m ON m.id = hit.value"  # noqa: S608  # only our own words
        f" JOIN sessions s ON s.id = m.session_id WHERE {' AND '.join(conditions)}"
    )
    return list(conn.scalars(text(sql), {**parameters, "found": json.dumps(found)}))


def _scores(conn: Connection, terms: Sequence[Term], ns: str, *, literal: bool) -> dict[int, float]:
    """Rare words count more. Rarity is that within the namespace: bm25 would go through every namespace for it, and tell of them."""
    total = conn.exec_driver_sql(
        "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH ?", (f'ns : "{ns}"',)
    ).scalar_one()
    parts = list(_memberships(terms, ns, literal=literal))
    sql = " UNION ALL ".join(
        f"SELECT {number}, rowid FROM {table} WHERE {table} MATCH ?"  # noqa: S608  # one of ours
        for number, (table, _, _, _) in enumerate(parts)
    )
    found: list[list[int]] = [[] for _ in parts]
    rows: CursorResult[int, int] = conn.exec_driver_sql(sql, tuple(match for _, match, _, _ in parts))
    for part, message in rows:
        found[part].append(message)
    scores: dict[int, float] = defaultdict(float)
    for (_, _, term, weight), messages in zip(parts, found, strict=True):
        holders = len(found[term])
        rarity = math.log(1 + (total - holders + 0.5) / (holders + 0.5))
        for message in messages:
            scores[message] += weight * rarity
    return scores


def _memberships(terms: Sequence[Term], ns: str, *, literal: bool) -> Iterator[tuple[str, str, int, float]]:
    """(table, match, the term's number, weight); the first ones are the terms in the messages' own words, in their order."""
    for number, term in enumerate(terms):
        yield "messages_fts", f'ns : "{ns}" AND text : {_quoted(term)}', number, 1.0
    for number, term in enumerate(() if literal else terms):
        yield "messages_fts", f'ns : "{ns}" AND sender : "{_as_speaker(term.words)}"', number, 2.0
        if len(terms) > 1:
            yield "messages_near", " AND ".join(f'"{word}"' for word in (ns, *term.words)), number, 0.7


def _ranked(
    conn: Connection,
    terms: Sequence[Term],
    conditions: list[str],
    parameters: dict[str, object],
    *,
    speakers: bool,
) -> list[int]:
    match = [f"text : {_quoted(term)}" for term in terms]
    match += [f'sender : "{_as_speaker(term.words)}"' for term in terms] if speakers else []
    parameters["match"] = " OR ".join(match)
    where = " AND ".join(["messages_fts MATCH :match", *conditions])
    join = "JOIN messages m ON m.id = f.rowid JOIN sessions s ON s.id = m.session_id" if conditions else ""
    sql = f"SELECT f.rowid FROM messages_fts f {join} WHERE {where} ORDER BY f.rank LIMIT :limit"  # noqa: S608  # only our own words
    return list(conn.scalars(text(sql), parameters))


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
