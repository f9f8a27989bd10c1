"""Search: the same language on both databases, neighbours, namespaces, and an index that can be taken apart again."""

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, delete, text

from gateway.agent.memory import recall
from sessions import store
from sessions.db import Database, open_database
from sessions.db.schema import messages
from sessions.errors import Invalid
from sessions.records import EndReason, Message, Role, Source
from sessions.search import message_index
from sessions.search.query import Mark, parse, start_of
from tests.integration.sessions.writing import conversation, found, index_all

KEY = "agent:main:telegram:group:-1"
OTHER = "agent:main:slack:channel:C1"

CORPUS = [
    "The universities were deploying a new server",
    "We moved the database to Berlin",
    "It's in the .env file, not in the repository",
    "Write to ann.lee@example.org about path/to/file.txt",
    "Coverage reached 100% at last, version 3.11",
    "今日は東京でラーメンを食べました",
    "서울에서 만나요",
    "To be or not to be",
    "Café Müller opens at nine",
    "The red car and the blue bike",
    "the blue car and the red bike",
    "snake_case_name and kebab-case-name",
    "C++ and C# differ",
    "🎉 party on Friday 🎉",
]


@pytest.fixture
def corpus(database: Database) -> Database:
    """Each text alone in a namespace of its own chat, so that neighbours play no part."""
    for number, line in enumerate(CORPUS):
        conversation(database, f"{KEY}{number}", line)
    index_all(database)
    return database


@pytest.mark.parametrize(
    ("query", "hits"),
    [
        ("deploy", [0]),
        ("university", [0]),
        ("universit*", [0]),
        ("server database", [0, 1]),
        ("where is the database", [1]),
        ("it's", [2]),
        (".env", [2]),
        ("ann.lee@example.org", [3]),
        ("path/to/file", [3]),
        ("100%", [4]),
        ("3.11", [4]),
        ("東京", [5]),
        ("ラーメン", [5]),
        ("서울", [6]),
        ("café", [8]),
        ("MÜLLER", [8]),
        ('"red car"', [9]),
        ('"car red"', []),
        ("red AND car", [9, 10]),
        ("red car NOT database", [9, 10]),
        ('"red car" OR "red bike"', [9, 10]),
        ('car NOT "red car"', [10]),
        ("(deploy OR berlin) NOT server", [1]),
        ("berlin OR deploy AND server", [0, 1]),
        ("dat* AND moved", [1]),
        ("dat* NOT moved", []),
        ("snake_case_name", [11]),
        ('"kebab-case-name"', [11]),
        ("C++", [12]),
        ("friday", [13]),
        ("zzz", []),
        ("NOT", [2, 7]),
        ("NOT server", [0]),
        ("AND", [9, 10, 11, 12]),
        ("server AND", [0]),
        ('"unbalanced server', [0]),
        ("((server", [0]),
        ("serv*er", []),
        ("'; DROP TABLE messages; --", []),
        ("ns : x", []),
        ("text:server", [0]),  # a colon names no column; they follow each other nowhere, so each of them will do
        ("server:*", [0]),
        ("^server", [0]),
        ("NEAR(red car)", []),
    ],
)
def test_the_query_language(corpus: Database, query: str, hits: list[int]) -> None:
    assert sorted(found(corpus, query, limit=50)) == sorted(CORPUS[i] for i in hits)


def test_a_query_of_stop_words_only_keeps_them(corpus: Database) -> None:
    assert found(corpus, "to be or not to be")[0] == "To be or not to be"


@pytest.mark.parametrize("query", ["", "   ", "!!!", "🎉", '""', "( )", "***", "\0"])
def test_a_query_without_a_word_is_refused_with_a_sentence(corpus: Database, query: str) -> None:
    with pytest.raises(Invalid, match="Give a word"):
        found(corpus, query)


QUERY = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(
            ["red", "car", '"red car"', "AND", "OR", "NOT", "(", ")", "ca*", "*", '"', "the", "it's", "東京", "server"]
        ),
        max_size=8,
    ).map(" ".join),
)


@given(query=QUERY)
@settings(max_examples=60)
def test_nothing_that_can_be_typed_is_an_error(corpus: Database, query: str) -> None:
    if parse(query) is not None:
        found(corpus, query)
        found(corpus, query, ns=KEY)


def test_both_databases_find_the_same(home: Path, postgres_url: str) -> None:
    """Random conversations in one namespace each; literal queries, so that ranking plays no part."""
    here, there = open_database(home), open_database(home, postgres_url)
    words = ["red", "blue", "cars", "car's", "running", "run", "database", "data", "Berlin"]
    texts = [" ".join(combination) for combination in itertools.permutations(words, 3)][::2]
    for database in (here, there):
        conversation(database, KEY, *texts)
        index_all(database)
    for query in [
        "red AND car",
        '"red blue"',
        "run* NOT berlin",
        "(red OR blue) AND (data OR berlin)",
        "dat* AND run",
        "run NOT (blue OR data)",
    ]:
        both = [set(found(database, query, ns=KEY, limit=1_000)) for database in (here, there)]
        assert both[0] == both[1] != set(), query
    here.close()
    there.close()


# --- neighbours -----------------------------------------------------------------------------------------------------------------


def test_an_answer_is_found_by_the_words_of_its_question(database: Database) -> None:
    conversation(database, KEY, "How long does sourdough rest?", "Twelve hours in the cold", "Thanks", "Anything else")
    index_all(database)
    hits = found(database, "sourdough rest duration", ns=KEY)
    assert hits[0].startswith("How long")
    assert "Twelve hours in the cold" in hits


def test_a_neighbours_word_satisfies_no_operator(database: Database) -> None:
    conversation(database, KEY, "alpha", "beta", "gamma")
    index_all(database)
    assert found(database, "alpha AND beta", ns=KEY) == []
    assert found(database, "beta NOT alpha", ns=KEY) == ["beta"]
    assert found(database, "gamma", ns=KEY) == ["gamma"]


def test_who_spoke_can_be_searched(database: Database) -> None:
    conversation(database, KEY, "I like tea", sender="Ann Lee")
    conversation(database, OTHER, "Ann likes coffee")
    index_all(database)
    assert found(database, "ann", ns=KEY) == ["I like tea"]


@pytest.mark.parametrize(("key", "recalled"), [(KEY, ["cake for us all"]), ("agent:main:telegram:dm:1", [])])
def test_who_spoke_is_recalled_where_several_people_write(database: Database, key: str, recalled: list[str]) -> None:
    conversation(database, key, "cake for us all", sender="Ann Lee")
    index_all(database)

    def search_past(conn: Connection) -> list[str | None]:
        session = store.active(conn, key)
        assert session is not None
        hits = recall.search_past(
            conn, session, "what did Ann bring?", run_id="now", without=frozenset(), now=1, timezone="UTC"
        )
        return [hit.content for hit in hits]

    assert database.read_now(search_past) == recalled


# --- walls ----------------------------------------------------------------------------------------------------------------------


def test_a_namespace_never_leaks(database: Database) -> None:
    conversation(database, KEY, "the launch code is swordfish", "noted")
    conversation(database, OTHER, "what is the launch code", "no idea")
    index_all(database)
    for query in ("swordfish", "launch code", '"launch code"', "sword*", "noted OR idea", "launch NOT idea"):
        hits = [hit.session.session_key for hit in database.read_now(message_index.search, query, ns=OTHER, limit=50)]
        assert set(hits) <= {OTHER}, query
    assert found(database, "swordfish", ns=OTHER) == []
    assert len(found(database, "launch")) >= 2


def test_the_name_of_a_namespace_cannot_be_guessed_into_a_query(database: Database) -> None:
    conversation(database, KEY, "swordfish")
    index_all(database)
    token = message_index.namespace_token(KEY)
    for query in (token, f"{token} swordfish", f'"{token}"', f"{token[:5]}*"):
        assert found(database, query, ns=OTHER) == []


def test_words_of_another_namespace_cannot_be_written_into_a_message(database: Database) -> None:
    """Whoever knows a chat's key can work out the words that stand for it in the index."""
    token = message_index.namespace_token(KEY)
    theirs = [start_of(token, mark) for mark in Mark]
    forged = " ".join([token, *(f"{start}swordfish" for start in theirs), *theirs, "swordfish"])
    conversation(database, KEY, "we meet at noon", "fine")
    conversation(database, OTHER, forged, "yes", forged, sender=f"{token} {theirs[1]}swordfish")
    index_all(database)
    for query in ("swordfish", "swordfish noon", '"swordfish"', "swordf*", "swordfish OR noon"):
        assert set(found(database, query, ns=KEY)) <= {"we meet at noon", "fine"}, query


def test_a_source_narrows(database: Database) -> None:
    conversation(database, KEY, "swordfish one")
    conversation(database, OTHER, "swordfish two")
    index_all(database)
    assert found(database, "swordfish", source=Source.SLACK) == ["swordfish two"]
    assert found(database, "sword*", source=Source.TELEGRAM) == ["swordfish one"]
    assert found(database, "swordfish", ns=KEY, source=Source.SLACK) == []
    assert found(database, '"swordfish one"', ns=KEY, source=Source.TELEGRAM) == ["swordfish one"]


def test_a_cut_off_hides_what_is_newer(database: Database) -> None:
    session = conversation(database, KEY, "swordfish one", "x", "swordfish two")
    index_all(database)
    last = database.read_now(store.last_messages, session.id, 1)[0].id
    assert found(database, "swordfish", ns=KEY, cut_off=last) == ["swordfish one"]
    assert found(database, "sword*", ns=KEY, cut_off=last) == ["swordfish one"]
    assert found(database, "swordfish", cut_off=last) == ["swordfish one"]


def test_only_what_somebody_said_is_searched(database: Database) -> None:
    """Results of tools would bring back earlier searches; a person's answer to a question stands in one all the same."""
    session = conversation(database, KEY)
    rows = [
        Message(role=Role.SYSTEM, content="swordfish system"),
        Message(role=Role.TOOL, content="swordfish tool", tool_call_id="c"),
        Message(role=Role.TOOL, content="swordfish answer", tool_call_id="d", sender="Ann"),
    ]
    database.write_now(store.append, session.id, rows, 1)
    index_all(database)
    assert found(database, "swordfish", ns=KEY) == ["swordfish answer"]
    assert found(database, "swordfish") == ["swordfish answer"]


def test_what_was_taken_back_or_deleted_is_not_found(database: Database) -> None:
    session = conversation(database, KEY, "keep swordfish", "yes", "drop marlin", "no")
    index_all(database)
    database.write_now(store.take_back, session.id)
    index_all(database)
    assert found(database, "marlin") == []
    assert found(database, "swordfish") == ["keep swordfish"]
    database.write_now(store.end, session.id, EndReason.USER, 1)
    assert found(database, "swordfish", ns=KEY) == ["keep swordfish"]
    database.write_now(store.delete_session, session.id)
    assert found(database, "swordfish") == []


def test_how_far_the_index_trails(database: Database) -> None:
    conversation(database, KEY, "a", "b", "c")
    assert database.read_now(message_index.unindexed) == 3
    assert not database.write_now(message_index.index_some)
    assert database.read_now(message_index.unindexed) == 0


def test_a_huge_message_is_indexed_in_part(database: Database) -> None:
    conversation(database, KEY, "swordfish " + " ".join(f"w{i}" for i in range(300_000)), "next")
    index_all(database)
    assert len(found(database, "swordfish", ns=KEY)) == 1


# --- the index itself -------------------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["red", "blue", "the", "running", "ran", "Müller", "東京", "it's", "x_y", "100%", "", " "])
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)
STEPS = st.lists(st.one_of(TEXTS, st.integers(1, 3)), min_size=1, max_size=14)


def contents(conn: Connection) -> list[object]:
    """All that the index holds: word, column, message, place."""
    tables = ("messages_fts", "messages_scoped", "messages_words")
    for table in tables:
        conn.execute(text(f"CREATE VIRTUAL TABLE temp.v_{table} USING fts5vocab(main, {table}, instance)"))
    rows = [tuple(conn.execute(text(f"SELECT * FROM temp.v_{table}")).all()) for table in tables]
    for table in tables:
        conn.execute(text(f"DROP TABLE temp.v_{table}"))
    return [sorted(map(tuple, some), key=repr) for some in rows]


def check(conn: Connection) -> None:
    for table in ("messages_fts", "messages_scoped", "messages_words"):
        conn.execute(text(f"INSERT INTO {table}({table}) VALUES ('integrity-check')"))


@given(steps=STEPS)
@settings(max_examples=60)
def test_indexing_in_any_chunks_is_indexing_at_once_and_forgetting_leaves_nothing(
    sqlite: Database, steps: list[str | int]
) -> None:
    def start_over(conn: Connection) -> None:
        for session in store.recent(conn, limit=None):
            store.delete_session(conn, session.id)

    def from_scratch(conn: Connection, session_id: str) -> list[object]:
        message_index.forget(conn, session_id)
        while message_index.index_some(conn):
            pass
        return contents(conn)

    sqlite.write_now(start_over)
    session = conversation(sqlite, KEY)
    for step in steps:
        if isinstance(step, int):
            sqlite.write_now(message_index.index_some, step)
        else:
            conversation(sqlite, KEY, step)
    index_all(sqlite, 1)
    in_chunks = sqlite.write_now(contents)
    assert in_chunks == sqlite.write_now(from_scratch, session.id)
    sqlite.write_now(check)
    sqlite.write_now(start_over)
    sqlite.write_now(check)
    assert sqlite.write_now(contents) == [[], [], []]


def test_a_search_looks_into_few_segments_however_often_messages_were_indexed(sqlite: Database) -> None:
    def segments(conn: Connection) -> list[int]:
        tables = ("messages_fts", "messages_scoped", "messages_words")
        return [conn.scalar(text(f"SELECT count(DISTINCT segid) FROM {table}_idx")) or 0 for table in tables]

    for number in range(60):
        conversation(sqlite, KEY, f"message {number}")
        index_all(sqlite)
        while sqlite.write_now(message_index.merge_step):
            pass
    assert max(sqlite.read_now(segments)) <= 6, "one of each size"
    assert len(found(sqlite, "message", ns=KEY, limit=100)) == 60
    sqlite.write_now(check)


def test_a_message_that_vanished_behind_our_back_breaks_no_search(database: Database) -> None:
    conversation(database, KEY, "swordfish", "swordfish again")
    index_all(database)
    database.write_now(lambda conn: conn.execute(delete(messages).where(messages.c.content == "swordfish")))
    assert found(database, "swordfish", ns=KEY) == ["swordfish again"]


def test_other_programs_may_read_the_search_table(home: Path, sqlite: Database) -> None:
    conversation(sqlite, KEY, "swordfish")
    index_all(sqlite)
    with closing(sqlite3.connect(home / "state.db")) as conn:
        query = "SELECT content FROM messages WHERE id IN (SELECT rowid FROM messages_fts WHERE messages_fts MATCH 'swordfish')"
        assert conn.execute(query).fetchall() == [("swordfish",)]
        shown = "SELECT text, snippet(messages_fts, 2, '[', ']', '…', 3) FROM messages_fts WHERE messages_fts MATCH 'swordfish'"
        assert conn.execute(shown).fetchall() == [("swordfish", "[swordfish]")]
        assert conn.execute("SELECT ns, sender, text FROM messages_fts").fetchall() == [(KEY, None, "swordfish")]


def test_a_rare_word_among_many_messages_is_found_in_its_own_namespace_only(database: Database) -> None:
    conversation(database, OTHER, *(f"line {number} of a long talk" for number in range(1_100)), "the walrus is theirs")
    conversation(database, KEY, "we feed the walrus", "yes", *["some other words"] * 8)
    index_all(database, 2_000)
    assert found(database, "walrus", ns=KEY) == ["we feed the walrus"]
    assert found(database, "line walrus", ns=KEY)[0] == "we feed the walrus"
    assert "the walrus is theirs" not in found(database, "walrus long talk", ns=KEY, limit=50)
    assert found(database, "walrus", ns=OTHER)[0] == "the walrus is theirs"
