"""A database with the rows that an earlier version has written, as they stand in `tests/golden/rows.json`: what was under way goes on."""

import base64
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from sqlalchemy import Boolean, Connection, text

from sessions import memory
from sessions.clock import now_ms
from sessions.db import Database, open_database
from sessions.db.schema import metadata
from sessions.search import note_index
from tests.e2e.telegram.daemon import Scene, daemon, settled
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[2] / "golden" / "rows.json").read_text())
TEN_MINUTES = 600_000
API_KEY = "k" * 32
OSLO = "agent:main"


def fill(conn: Connection, home: Path) -> None:
    """Inserts the rows as text, past every shape that the code has for them today."""
    for name, rows in GOLDEN["tables"].items():
        table = metadata.tables[name]
        for row in rows:
            values = {column: _raw(table.c[column].type, value, home) for column, value in row.items()}
            marks = ", ".join(f":{column}" for column in values)
            conn.execute(text(f"INSERT INTO {name} ({', '.join(values)}) VALUES ({marks})"), values)
        if (
            conn.dialect.name != "sqlite"
            and "id" in table.c
            and isinstance(rows[0]["id"], int)
            and name != "note_vectors"
        ):
            conn.execute(text(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), max(id)) FROM {name}"))
    for row in GOLDEN["tables"]["observations"]:
        note_index.add(conn, row["id"], row["ns"], (row["text"], ""), json.loads(row.get("asked_as", "[]")))


def _raw(kind: object, value: Any, home: Path) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    if isinstance(value, str):
        return value.replace("/then/", f"{home}/")
    return bool(value) if isinstance(kind, Boolean) else value


def reply(body: dict[str, Any]) -> str:
    last = str(body["messages"][-1]["content"])
    if body["messages"][-1]["role"] == "tool":
        return f"So it is {last}."
    return "This is it." if "what is this?" in last else "I have thought."


@asynccontextmanager
async def later(home: Path, database_url: str) -> AsyncGenerator[tuple[Scene, ModelServer, list[Any]]]:
    """Ten minutes after the rows were written: a daemon on them, the chats that it knew, and what was sent to each since."""
    (home / "outgoing").mkdir()
    (home / "outgoing" / "list.txt").write_text("milk\n")
    filled = open_database(home, database_url)
    filled.write_now(fill, home)
    filled.close()
    offset = GOLDEN["made_at"] + TEN_MINUTES - now_ms()
    async with TelegramServer() as server, ModelServer(reply) as model:
        server._updates = itertools.count(20_000)
        ann = server.user(7, "Ann")
        dm, bob, group = server.dm(ann), server.dm(server.user(8, "Bob")), server.group(-1001)
        sections = {
            "model": {"base_url": model.url, "name": "big", "api_key": "k"},
            "api": {"port": 0, "keys": [{"name": "laptop", "key": API_KEY, "scopes": ["chat", "read", "admin"]}]},
            "database": {"url": database_url},
        }
        allowed = {"allowed_chats": ["*"], "allowed_users": ["7", "8"]}
        async with daemon(home, server, sections=sections, clock=lambda: now_ms() + offset, **allowed) as (app, served):
            yield Scene(server=server, app=app, serving=served, ann=ann, dm=dm), model, [bob, group]


async def test_what_was_under_way_goes_on(home: Path, database_url: str) -> None:
    async with later(home, database_url) as (s, model, (bob, group)):
        # The rest of the answer is sent, the run that was cut off answers, and has taken in the picture that came meanwhile.
        (rest,) = await s.server.answered(s.dm.id)
        assert rest.startswith("line(55)")
        assert rest.rstrip().endswith("x" * 60)
        said = await s.server.answered(bob.id, 3)
        assert {"Ready?", "I have thought."} <= set(said)
        (card,) = [message for message in s.server.chat(bob.id) if message.text == "Ready?"]
        assert card.buttons
        await s.server.until(lambda: any(message.file == b"milk\n" for message in s.server.chat(bob.id)))
        thought = next(call for call in model.calls if "think about it" in str(call.messages))
        assert "my picture" in str(thought.messages[-1])
        # The question that waits takes the answer.
        s.server.user_says(group, s.ann, "@hermes_bot Blue")
        assert await s.server.answered(group.id) == ["So it is [Ann] Blue."]
        await settled(s.app.database)


async def test_calls_that_were_kept_go_on(home: Path, database_url: str) -> None:
    async with (
        later(home, database_url) as (s, model, _),
        openai.AsyncOpenAI(base_url=f"{s.serving.url}/v1", api_key=API_KEY) as client,
        aiohttp.ClientSession(s.serving.url, headers={"Authorization": f"Bearer {API_KEY}"}) as http,
    ):
        kept = GOLDEN["tables"]["responses"]
        first = await client.responses.retrieve(kept[0]["id"])
        assert first.output_text == "ok"
        newest = kept[1]["id"]
        await client.responses.create(model="hermes", input="and then?", previous_response_id=newest)
        (asked,) = [call for call in model.calls if "and then?" in str(call.messages)]
        said = [str(each["content"]) for each in asked.messages[1:]]
        assert [each.rpartition("\n")[2] for each in said] == ["hello response", "ok", "and again", "ok", "and then?"]
        # A queued call of an API session has its own options and its picture.
        await s.server.until(lambda: any("what is this?" in str(call.messages) for call in model.calls))
        (queued,) = [call for call in model.calls if "what is this?" in str(call.messages)]
        assert (queued.body["temperature"], queued.body["max_tokens"]) == (0.5, 50)
        assert "Be very brief." in str(queued.messages[0])
        assert [part["type"] for part in queued.messages[-1]["content"]] == ["text", "image_url"]
        # A thread's question, its events, and a job.
        (thread,) = [row for row in GOLDEN["tables"]["runs"] if row.get("deployment")]
        path = f"/v1/deployments/{thread['deployment']}/runs/{thread['id']}"
        async with http.post(f"{path}/steering", json={"response": "Red"}) as answered:
            assert answered.status == 202
        async with http.get(f"/v1/deployments/{thread['deployment']}/events?run_id={thread['id']}") as events:
            read = [line async for line in _until(events, b'"completed"')]
        assert sum(b"steering_request" in line for line in read) == 1
        async with http.get("/api/jobs") as listed:
            (job,) = (await listed.json())["jobs"]
        assert (job["schedule_display"], job["deliver"]) == ("At 09:00, only on Monday", "telegram")


async def _until(events: aiohttp.ClientResponse, end: bytes) -> AsyncGenerator[bytes]:
    async for line in events.content:
        yield line
        if end in line:
            return


@pytest.fixture
def golden(database: Database, home: Path) -> Database:
    database.write_now(fill, home)
    return database


def test_what_was_remembered_is_found_and_forgotten(golden: Database) -> None:
    notes = golden.read_now(memory.open_notes, OSLO)
    assert [(note.text, note.src, note.asked_as) for note in notes] == [
        ("Ann lives in Oslo", (1,), ("Where does Ann live?",)),
        ("Ann has a cat named Miso", (1,), ()),
    ]
    asked = memory.vectors.QueryVector(model="embedder", vector=(0.0, 1.0, 0.0, 0.0))
    assert golden.read_now(memory.vectors.nearest, OSLO, asked)
    assert golden.read_now(memory.state, OSLO).digest == "Ann lives in Oslo with her cat Miso."
    golden.write_now(memory.forget, OSLO, notes[0].id)
    assert [note.text for note in golden.read_now(memory.open_notes, OSLO)] == ["Ann has a cat named Miso"]
