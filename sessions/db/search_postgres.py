"""The search index on PostgreSQL: one row per message with a stemmed and an unstemmed tsvector."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, text

from sessions.db.index_entry import Entry
from sessions.db.query import Both, Either, Node, Query, Term, Without, words
from sessions.db.schema import message_search

_ADD = text(
    "INSERT INTO message_search (message_id, ns, stems, words) VALUES (:message_id, :ns,"
    " setweight(to_tsvector('hermes', :sender), 'A') || setweight(to_tsvector('hermes', :text), 'B') ||"
    " setweight(to_tsvector('hermes', :ctx), 'C'), to_tsvector('simple', :text))"
)
_RANK = "ts_rank('{0, 0.25, 0.5, 1}', i.stems, to_tsquery('hermes', :wanted))"


def add(conn: Connection, entries: Sequence[Entry]) -> None:
    if entries:
        conn.execute(_ADD, [_plain(entry) for entry in entries])


def _plain(entry: Entry) -> dict[str, object]:
    """Words only: PostgreSQL's parser would take addresses, paths and numbers for words of their own kind."""
    text_of = {"sender": entry.sender, "text": entry.text, "ctx": entry.ctx}
    return {
        "message_id": entry.message_id,
        "ns": entry.ns,
        **{name: " ".join(words(value)) for name, value in text_of.items()},
    }


def remove(conn: Connection, entries: Sequence[Entry]) -> None:
    conn.execute(delete(message_search).where(message_search.c.message_id.in_([e.message_id for e in entries])))


def erase_step(conn: Connection) -> bool:  # noqa: ARG001  # the same four functions as on SQLite
    return False


def find(
    conn: Connection, query: Query, ns: str | None, source: str | None, limit: int, cut_off: int | None
) -> list[int]:
    parameters: dict[str, object] = {"limit": limit, "ns": ns, "source": source, "cut_off": cut_off}
    alone = isinstance(query.node, Term)  # one word gains nothing from neighbours: they contain it themselves
    conditions = [_algebra(query.node, "B" if query.literal else "AB" if alone else "ABC", parameters)]
    if ns is not None:
        conditions.append("i.ns = :ns")
    if source is not None:
        conditions.append("s.source = :source")
    if cut_off is not None:
        conditions.append("m.id < :cut_off")
    parameters["wanted"] = " | ".join(_phrase(term, "") for term in query.terms() if not term.prefix)
    sql = (
        "SELECT m.id FROM message_search i JOIN messages m ON m.id = i.message_id JOIN sessions s ON s.id = m.session_id"  # noqa: S608
        f" WHERE {' AND '.join(conditions)} ORDER BY {_RANK} DESC, m.id DESC LIMIT :limit"
    )
    return list(conn.scalars(text(sql), parameters))


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


def _phrase(term: Term, weights: str) -> str:
    label = f":{weights}" if weights else ""
    return " <-> ".join(f"'{word}'{label}" for word in term.words)
