"""Out and in again is the same content; what exists stays; bad files say where they are bad."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from sessions import audit, export, store
from sessions.db import Database
from sessions.errors import Invalid
from sessions.jobs.making import create, new_job
from sessions.messages import Attachment, AttachmentKind
from sessions.records import EndReason, Message, MessageState, Role, Source
from tests.integration.sessions.writing import conversation, found, index_all, open_session

KEY = "agent:main:telegram:group:-1"
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT, lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
FILES = st.builds(
    Attachment, kind=st.sampled_from(AttachmentKind), name=TEXT, size=st.none() | st.integers(0, 9), ref=TEXT
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(Role),
    content=st.none() | TEXT,
    run_id=st.none() | st.just("run_1"),
    tool_calls=st.none() | st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=3),
    tool_call_id=st.none() | TEXT,
    tool_name=st.none() | TEXT,
    token_count=st.none() | st.integers(0, 10**6),
    sender=st.none() | TEXT,
    attachments=st.lists(FILES, max_size=2).map(tuple),
    state=st.sampled_from([MessageState.DONE, MessageState.UNKNOWN]),
)


def without_ids(exported: dict[str, Any]) -> dict[str, Any]:
    return {**exported, "messages": [{k: v for k, v in m.items() if k != "id"} for m in exported["messages"]]}


def out_and_in(conn: Connection, session_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    before = export.export_session(conn, session_id)
    store.delete_session(conn, session_id)
    (parsed,) = export.parse_lines([json.dumps(before)])
    assert export.import_session(conn, parsed, "cli:ann")
    assert audit.actions(conn, f"session:{session_id}")[-1] == ("cli:ann", "session.imported")
    after = export.export_session(conn, session_id)
    store.delete_session(conn, session_id)
    return before, after


@given(new=st.lists(MESSAGES, max_size=6), title=st.none() | TEXT, ended=st.booleans())
@settings(max_examples=50)
def test_out_and_in_again_is_the_same(
    database: Database, new: list[Message], title: str | None, *, ended: bool
) -> None:
    def write(conn: Connection) -> str:
        session = open_session(conn, KEY)
        used = store.AnswerCost(input_tokens=3, output_tokens=4)
        store.append(conn, session.id, [*new, Message(role=Role.ASSISTANT, content="fine")], 5, used=used)
        store.rename(conn, session.id, title or "")
        if ended:
            store.end(conn, session.id, EndReason.IDLE, 9)
        return session.id

    before, after = database.write_now(out_and_in, database.write_now(write))
    assert without_ids(before) == without_ids(after)


def test_an_export_holds_every_field_that_may_be_relied_on(database: Database) -> None:
    session = conversation(database, KEY, "hello")
    exported = database.read_now(export.export_session, session.id)
    promised = "id session_key source user_id agent model model_config system_prompt title started_at ended_at end_reason last_user_at"
    promised += " parent_session_id message_count tool_call_count input_tokens output_tokens messages"
    assert set(promised.split()) <= set(exported)
    promised = "id run_id role content tool_calls tool_call_id tool_name token_count created_at"
    assert set(promised.split()) <= set(exported["messages"][0])


def imported(database: Database, *lines: str) -> list[bool]:
    return [database.write_now(export.import_session, line, "cli:ann") for line in export.parse_lines(lines)]


def line(database: Database, session_id: str, **changes: Any) -> str:
    return json.dumps({**database.read_now(export.export_session, session_id), **changes})


def test_what_exists_stays_as_it_is(database: Database) -> None:
    session = conversation(database, KEY, "hello")
    assert imported(database, line(database, session.id, title="changed")) == [False]
    assert database.read_now(store.get, session.id).title is None


def test_an_imported_session_is_ended_when_its_key_is_taken(database: Database) -> None:
    old = conversation(database, KEY, "old")
    text = line(database, old.id)
    database.write_now(store.delete_session, old.id)
    current = conversation(database, KEY, "new")
    assert imported(database, text) == [True]
    assert database.read_now(store.active, KEY).id == current.id  # type: ignore[union-attr]
    assert database.read_now(store.get, old.id).end_reason is EndReason.USER


def test_an_interrupted_call_survives(database: Database) -> None:
    def write(conn: Connection) -> str:
        session = open_session(conn, KEY)
        store.append(conn, session.id, [Message(role=Role.TOOL, tool_call_id="c", state=MessageState.STARTED)], 1)
        return session.id

    _, after = database.write_now(out_and_in, database.write_now(write))
    assert after["messages"][0]["state"] == "unknown"


def test_whose_memory_a_session_has_follows_from_its_key_and_for_a_job_from_the_job(database: Database) -> None:
    session = conversation(database, KEY, "hello")
    text = line(database, session.id, ns="agent:main")
    database.write_now(store.delete_session, session.id)
    assert imported(database, text) == [True]
    assert database.read_now(store.get, session.id).ns == KEY

    job = new_job(name="j", schedule="@daily", prompt="p", timezone="UTC", now=1, origin="agent:dep_9")
    database.write_now(create, job)
    own = conversation(database, f"agent:main:job:{job.id}", "hello")
    text = line(database, own.id)
    database.write_now(store.delete_session, own.id)
    assert imported(database, text) == [True]
    assert database.read_now(store.get, own.id).ns == "agent:dep_9"


def test_an_imported_session_can_be_searched(database: Database) -> None:
    session = conversation(database, KEY, "swordfish")
    text = line(database, session.id)
    database.write_now(store.delete_session, session.id)
    imported(database, text)
    index_all(database)
    assert found(database, "swordfish", ns=KEY) == ["swordfish"]


def test_an_export_follows_the_chain(database: Database) -> None:
    first = conversation(database, KEY, "a")
    child = database.write_now(store.continue_in_child, first, 5)
    conversation(database, "agent:main:slack:dm", "x")
    assert database.read_now(export.conversations, session=first) == [first.id, child.id]
    assert len(database.read_now(export.conversations)) == 3
    assert len(database.read_now(export.conversations, source=Source.SLACK)) == 1


GOOD = {"id": "20250305_091523_a1b2c3d4", "session_key": KEY, "source": "telegram", "started_at": 1, "messages": []}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("no json", "line 2 is no JSON object"),
        ("[]", "line 2 is no JSON object"),
        ("7", "line 2 is no JSON object"),
        (json.dumps({**GOOD, "id": "../../x"}), "line 2: '../../x' is no session id"),
        (json.dumps({**GOOD, "session_key": "x"}), "line 2: 'x' is no session key"),
        (json.dumps({**GOOD, "source": "icq"}), "line 2: the source"),
        (json.dumps({k: v for k, v in GOOD.items() if k != "started_at"}), "line 2: started_at"),
        (json.dumps({**GOOD, "messages": [{"role": "user"}]}), "line 2: messages.0.created_at"),
        (json.dumps({**GOOD, "messages": [{"role": "god", "created_at": 1}]}), "line 2: messages.0.role"),
        (json.dumps({**GOOD, "started_at": 10**30}), "line 2: started_at"),
    ],
)
def test_a_bad_line_is_named(text: str, complaint: str) -> None:
    with pytest.raises(Invalid) as refusal:
        list(export.parse_lines(["", text]))
    assert complaint in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_strange_characters_come_in_without_harm(database: Database) -> None:
    message = {"role": "user", "content": "a\0b\ud800c", "created_at": 1}
    assert imported(database, json.dumps({**GOOD, "messages": [message], "later": "field"})) == [True]
    (kept,) = database.read_now(store.read_messages, str(GOOD["id"]))
    assert kept.content == "a\ufffdb\ufffdc"
