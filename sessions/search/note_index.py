"""The search index of observations: what each says, why, and the questions that it answers. Written with its row, never later."""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from sessions.search.query import Mark, namespace_token, scoped, words

_SQL = {
    "sqlite": (
        "INSERT INTO observations_fts(rowid, words) VALUES (:id, :words)",
        "INSERT INTO observations_fts(observations_fts, rowid, words) VALUES ('delete', :id, :words)",
    ),
    "postgresql": (
        (
            "INSERT INTO observation_search(observation_id, ns, stems) VALUES (:id, :ns,"
            " setweight(to_tsvector('hermes', :text), 'B') || setweight(to_tsvector('hermes', :asked), 'C'))"
        ),
        "DELETE FROM observation_search WHERE observation_id = :id",
    ),
}


def add(conn: Connection, number: int, ns: str, said: Sequence[str], asked: Sequence[str] = ()) -> None:
    """Makes observation `number` findable by what it says, and by the questions that it answers."""
    conn.execute(text(_SQL[conn.dialect.name][0]), _values(conn, number, ns, said, asked))
    if conn.dialect.name == "sqlite":  # few segments, since a recall looks for each word in all of them
        conn.exec_driver_sql("INSERT INTO observations_fts(observations_fts, rank) VALUES ('merge', 16)")


def remove(conn: Connection, number: int, ns: str, said: Sequence[str], asked: Sequence[str]) -> None:
    """Takes it out again. The texts must be exactly what was added: the index of SQLite keeps no copy of them."""
    conn.execute(text(_SQL[conn.dialect.name][1]), _values(conn, number, ns, said, asked))


def _values(conn: Connection, number: int, ns: str, said: Sequence[str], asked: Sequence[str]) -> dict[str, object]:
    token = namespace_token(ns)
    said_words, asked_words = (" ".join(dict.fromkeys(words(" ".join(some)))) for some in (said, asked))
    if conn.dialect.name == "sqlite":
        of_notes = (
            scoped(each, *of) for each in (token, "") for of in ((Mark.NOTE, said_words), (Mark.ASKED, asked_words))
        )
        return {"id": number, "words": " ".join(of_notes)}
    return {"id": number, "ns": token, "text": said_words, "asked": asked_words}


def clean(conn: Connection) -> None:
    """Rewrites the index, so that no removed word stays in it. It is small: this takes milliseconds."""
    if conn.dialect.name == "sqlite":
        conn.exec_driver_sql("INSERT INTO observations_fts(observations_fts) VALUES ('optimize')")
