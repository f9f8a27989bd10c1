"""The search index of observations: what each says, why, and the questions that it answers. Written with its row, never later."""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from sessions.db.query import namespace_token, words

_SQL = {
    "sqlite": (
        "INSERT INTO observations_fts(rowid, ns, text, asked) VALUES (:id, :ns, :text, :asked)",
        "INSERT INTO observations_fts(observations_fts, rowid, ns, text, asked) VALUES ('delete', :id, :ns, :text, :asked)",
    ),
    "postgresql": (
        (
            "INSERT INTO observation_search(observation_id, ns, stems) VALUES (:id, :ns,"
            " setweight(to_tsvector('hermes', :text), 'B') || setweight(to_tsvector('hermes', :asked), 'C'))"
        ),
        (
            "DELETE FROM observation_search WHERE observation_id = :id AND ns = :ns"
            " AND CAST(:text AS text) IS NOT NULL AND CAST(:asked AS text) IS NOT NULL"
        ),
    ),
}


def add(conn: Connection, number: int, ns: str, said: Sequence[str], asked: Sequence[str] = ()) -> None:
    """Makes observation `number` findable by what it says, and by the questions that it answers."""
    conn.execute(text(_SQL[conn.dialect.name][0]), _values(number, ns, said, asked))


def remove(conn: Connection, number: int, ns: str, said: Sequence[str], asked: Sequence[str]) -> None:
    """Takes it out again. The texts must be exactly what was added: the index of SQLite keeps no copy of them."""
    conn.execute(text(_SQL[conn.dialect.name][1]), _values(number, ns, said, asked))


def _values(number: int, ns: str, said: Sequence[str], asked: Sequence[str]) -> dict[str, object]:
    said_words, asked_words = (" ".join(words(" ".join(some))) for some in (said, asked))
    return {"id": number, "ns": namespace_token(ns), "text": said_words, "asked": asked_words}


def clean(conn: Connection) -> None:
    """Rewrites the index, so that no removed word stays in it. It is small: this takes milliseconds."""
    if conn.dialect.name == "sqlite":
        conn.exec_driver_sql("INSERT INTO observations_fts(observations_fts) VALUES ('optimize')")
