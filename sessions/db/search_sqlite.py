"""The search index on SQLite: three FTS5 tables for messages that do not store their content (contentless).

`messages_fts` has each message's own words, stemmed, with positions, and its sender's name; `messages_near` the content words of the
messages around it; `messages_words` its content words unstemmed, for `prefix*`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, text

from sessions.db.index_entry import Entry
from sessions.db.query import Both, Either, Node, Query, Term, Without, namespace_token, words
from sessions.db.ranking import COUNTED, Counts, Place, Weighed, ranked
from sessions.db.scoped_words import Mark, start_of

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
"""The first character of each word of a sender's name in the index. So a search for the name does not read all messages with that word."""
FEW = 1_000
"""Up to this many messages with a word, the namespace of each is checked one by one."""
MANY = 1_000
"""Below this many messages, all messages of the namespace are read, which is faster then."""


def add(conn: Connection, entries: Sequence[Entry]) -> None:
    _run(conn, _ADD, entries)


def remove(conn: Connection, entries: Sequence[Entry]) -> None:
    """Removes entries. They must be equal to those that were added: FTS5 tables without content need the old text to delete it."""
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
    """Merges segments of the index a little, which removes deleted words from the file. Returns True when there is more to merge."""
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
    found = ranked(_SqliteLookup(conn, ns), terms, None if conditions else limit, literal=query.literal, least=least)
    return _allowed(conn, found, conditions, parameters)[:limit] if conditions else found


def find_notes(conn: Connection, terms: Sequence[Term], ns: str, limit: int) -> list[int]:
    return _SqliteLookup(conn, ns).best_notes(terms, limit)


def _allowed(conn: Connection, found: list[int], conditions: list[str], parameters: dict[str, object]) -> list[int]:
    sql = (
        "SELECT m.id FROM json_each(:found) hit JOIN messages m ON m.id = hit.value"  # noqa: S608  # only our own words
        f" JOIN sessions s ON s.id = m.session_id WHERE {' AND '.join(conditions)} ORDER BY hit.key"
    )
    return list(conn.scalars(text(sql), {**parameters, "found": json.dumps(found)}))


_OF_NAMESPACE = (
    "{0} CROSS JOIN messages m ON m.id = {0}.rowid CROSS JOIN sessions s ON s.id = m.session_id"
    " WHERE {0} MATCH {1} AND s.ns = :ns"
)
_PLAIN = "{0} WHERE {0} MATCH {1}"
_SOURCES = {
    "text": ("messages_fts", _PLAIN),
    "text_few": ("messages_fts", _OF_NAMESPACE),
    "near": ("messages_near", _PLAIN),
    "near_few": ("messages_near", _OF_NAMESPACE),
    "notes": ("observations_fts", _PLAIN),
}
"""Source → its table, and the SQL that finds the messages with a word. For words of few messages (`_few`) it finds all messages with the
word and then checks their namespace. For other words the index reads all messages of the namespace."""


def _found(source: str, word: str) -> str:
    table, holders = _SOURCES[source]
    return holders.format(table, word)


def _counted(source: str) -> str:
    holders = f"SELECT 1 FROM {_found(source, 'value')} LIMIT :most"  # noqa: S608  # our own words
    return f"SELECT key, (SELECT count(*) FROM ({holders})) FROM json_each(:{source})"  # noqa: S608  # our own words


def _scores(source: str) -> str:
    parts = "json_extract(value, '$[0]'), json_extract(value, '$[1]')"
    return f"{source}_words(word, score) AS MATERIALIZED (SELECT {parts} FROM json_each(:{source}))"  # noqa: S608  # our own words


def _scored(source: str) -> str:
    table, holders = _SOURCES[source]
    return f"SELECT {table}.rowid AS id, score FROM {source}_words CROSS JOIN {holders.format(table, 'word')}"  # noqa: S608  # our own words


_FEW = f"SELECT key FROM json_each(:words) WHERE (SELECT count(*) FROM (SELECT 1 FROM {_found('near', 'value')} LIMIT {FEW + 1})) BETWEEN 1 AND {FEW}"  # noqa: S608  # our own words
_ALL = "SELECT -1, (SELECT count(*) FROM messages)"
_ALL_OF_NAMESPACE = f"SELECT -1, (SELECT count(*) FROM (SELECT 1 FROM {_found('near', ':wall')} LIMIT :counted))"  # noqa: S608  # our own words
_COUNT = f"{_counted('text')} UNION ALL {_counted('text_few')} UNION ALL "
_BEST = (
    f"WITH {', '.join(map(_scores, _SOURCES))},"  # noqa: S608  # our own words
    f" noted AS (SELECT id, sum(score) AS score FROM ({_scored('notes')}) GROUP BY id)"
    f" SELECT id FROM ({' UNION ALL '.join(_scored(source) for source in _SOURCES if source != 'notes')} UNION ALL"
    " SELECT CAST(j.value AS INTEGER) AS id, max(n.score) AS score"
    " FROM noted n JOIN observations o ON o.id = n.id, json_each(o.src) j GROUP BY 1"
    ") hits GROUP BY id ORDER BY sum(score) DESC, id DESC LIMIT :most"
)
_BEST_NOTES = (
    f"SELECT observations_fts.rowid AS id FROM json_each(:words) CROSS JOIN {_found('notes', 'value')}"  # noqa: S608  # our own words
    " GROUP BY 1 ORDER BY count(*) DESC, 1 DESC LIMIT :most"
)


class _SqliteLookup:
    """Implements `ranking.Lookup`. The SQL text does not depend on the words, so that SQLite prepares each statement only once."""

    def __init__(self, conn: Connection, ns: str | None) -> None:
        self._conn, self._ns = conn, ns
        self._token = None if ns is None else namespace_token(ns)
        self._few = frozenset[Term]()

    def count(self, terms: Sequence[Term], most: int | None) -> Counts:
        self._few = self._held_by_few(terms)
        words: dict[str, dict[int, str]] = {"text": {}, "text_few": {}}
        for place, term in enumerate(terms):
            source, word = self._word(Place.TEXT, term)
            words[source][place] = word
        limits = {"most": -1, "counted": -1} if most is None else {"most": most, "counted": COUNTED}
        values = {**_as_json(words), **limits, "ns": self._ns, "wall": f'"{self._token}"'}
        found = self._conn.exec_driver_sql(_COUNT + (_ALL if self._ns is None else _ALL_OF_NAMESPACE), values)
        counts = {int(key): number for key, number in found.all()}
        return Counts(messages=counts.pop(-1), holders=[counts[place] for place in range(len(terms))])

    def _held_by_few(self, terms: Sequence[Term]) -> frozenset[Term]:
        """Returns the terms that are near at most FEW messages of all namespaces (in `messages_near`); none while there are fewer than MANY
        messages. Stop words are never among them, because `messages_near` does not contain them."""
        newest = 0 if self._ns is None else self._conn.exec_driver_sql("SELECT max(id) FROM messages").scalar() or 0
        if newest < MANY:
            return frozenset()
        words = json.dumps([_together(term.words) for term in terms])
        found: list[int] = list(self._conn.exec_driver_sql(_FEW, {"words": words}).scalars())
        return frozenset(terms[place] for place in found)

    def best(self, wanted: Sequence[Weighed], limit: int) -> list[int]:
        words: dict[str, list[tuple[str, float]]] = {source: [] for source in _SOURCES}
        for each in wanted:
            source, word = self._word(each.place, each.term)
            words[source].append((word, each.score))
        values = {**_as_json(words), "most": limit, "ns": self._ns}
        return list(self._conn.exec_driver_sql(_BEST, values).scalars().all())

    def best_notes(self, terms: Sequence[Term], limit: int) -> list[int]:
        words = [self._word(place, term)[1] for place in (Place.NOTE, Place.ASKED) for term in terms]
        return list(self._conn.exec_driver_sql(_BEST_NOTES, {"words": json.dumps(words), "most": limit}).scalars())

    def _word(self, place: Place, term: Term) -> tuple[str, str]:
        """Returns the source for this place, and the FTS5 expression for the term."""
        few = "_few" if term in self._few else ""
        wall = "" if self._token is None or few else f'ns : "{self._token}" AND '
        match place:
            case Place.TEXT:
                return f"text{few}", f"{wall}text : {_quoted(term)}"
            case Place.SENDER:
                ours = "" if self._token is None else f'ns : "{self._token}" AND '
                return "text", f'{ours}sender : "{_as_speaker(term.words)}"'
            case Place.NEAR:
                return f"near{few}", _together(term.words if few or self._token is None else (self._token, *term.words))
            case Place.NOTE | Place.ASKED:
                mark = Mark.NOTE if place is Place.NOTE else Mark.ASKED
                return "notes", _together(term.words, start_of(self._token or "", mark))


def _as_json(words: Mapping[str, object]) -> dict[str, str]:
    return {source: json.dumps(some) for source, some in words.items()}


def _together(of: Iterable[str], start: str = "") -> str:
    return " AND ".join(f'"{start}{word}"' for word in of)


def _newest(conn: Connection, conditions: list[str], parameters: dict[str, object]) -> list[int]:
    """Returns hits of a query of prefixes alone, newest first: prefixes are not ranked."""
    where = " AND ".join(conditions)
    sql = f"SELECT m.id FROM messages m JOIN sessions s ON s.id = m.session_id WHERE {where} ORDER BY m.id DESC LIMIT :limit"  # noqa: S608
    return list(conn.scalars(text(sql), parameters))


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
