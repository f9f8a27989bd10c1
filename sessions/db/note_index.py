"""The search index of observations: what each says, why, and the questions that it answers. Written with its row, never later."""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from sessions.db.query import namespace_token, words

_SQL = {
    "sqlite": (
        "INSERT INTO observations_fts(rowid, ns, text) VALUES (:id, :ns, :text)",
        "INSERT INTO observations_fts(observations_fts, rowid, ns, text) VALUES ('delete', :id, :ns, :text)",
    ),
    "postgresql": (
        "INSERT INTO observation_search(observation_id, ns, stems) VALUES (:id, :ns, to_tsvector('hermes', :text))",
        "DELETE FROM observation_search WHERE observation_id = :id AND ns = :ns AND CAST(:text AS text) IS NOT NULL",
    ),
}


def add(conn: Connection, number: int, ns: str, said: Sequence[str]) -> None:
    """Makes observation `number` findable by these texts."""
    conn.execute(text(_SQL[conn.dialect.name][0]), _values(number, ns, said))


def remove(conn: Connection, number: int, ns: str, said: Sequence[str]) -> None:
    """Takes it out again. `said` must be exactly what was added: the index of SQLite keeps no copy of it."""
    conn.execute(text(_SQL[conn.dialect.name][1]), _values(number, ns, said))


def _values(number: int, ns: str, said: Sequence[str]) -> dict[str, object]:
    return {"id": number, "ns": namespace_token(ns), "text": " ".join(words(" ".join(said)))}


def clean(conn: Connection) -> None:
    """Rewrites the index, so that no removed word stays in it. It is small: this takes milliseconds."""
    if conn.dialect.name == "sqlite":
        conn.exec_driver_sql("INSERT INTO observations_fts(observations_fts) VALUES ('optimize')")
