"""Memory through the whole worker, from a message to the request that the model gets.

What folds find is scripted: these tests show that the plumbing holds, not that a model judges well.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from gateway.agent.memory.fold_worker import FoldWorker
from gateway.agent.models.interface import ModelRequest
from gateway.agent.tools import memory as memory_tool
from gateway.agent.tools import session_search
from sessions import memory, store
from sessions.db import open_database
from sessions.keys import Address, ChatKind, Platform, SessionKey
from sessions.records import EndReason, Message, Route
from sessions.search import message_index, sqlite
from tests.fakes.model_replies import Failure, call, calls
from tests.integration.memory.folding import JSON, extractor
from tests.integration.runs.worker_in_process import KEY, Plain, WorkerHarness, tool, worker_in_process

TOOLS = (memory_tool.TOOL, session_search.TOOL)


def last_user(body: JSON) -> str:
    return str(next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user"))


def system(it: WorkerHarness) -> str:
    return str(it.server.bodies[-1]["messages"][0]["content"])


async def fold(it: WorkerHarness, key: str = KEY, *, keep: int = 0) -> None:
    """As the worker of folds does it, now."""
    worker = FoldWorker(it.app)
    session = await it.database.read(store.active, key)
    assert session is not None
    while (again := await worker.fold(session.id, keep=keep)) is not None and again <= it.app.clock():
        pass


async def index(it: WorkerHarness) -> None:
    while await it.database.write(message_index.index_some):
        pass


@asynccontextmanager
async def worker_with_tools(home: Path, script: Any = (), **more: Any) -> AsyncIterator[WorkerHarness]:
    async with worker_in_process(home, script, tools=TOOLS, **more) as it:
        yield it


# --- the article's own cases, with a scripted extractor ---------------------------------------------------------------------------

STORY = {
    "alex": {"text": "Alex is building a cache in Rust", "kind": "fact"},
    "postgresql": {"text": "The database is PostgreSQL 16"},  # wrong on purpose
    "redis": {
        "text": "Redis was removed",
        "kind": "decision",
        "cause": "cache invalidation bugs caused stale product prices",
    },
    "graphql looks": {"text": "GraphQL is being tried", "kind": "decision"},
    "back to rest": {"text": "GraphQL was reverted to REST", "kind": "decision", "was": "GraphQL is being tried"},
    "committed to microservices": {"text": "Committed to microservices", "kind": "decision"},
    "into a monolith": {
        "text": "All services merged into a monolith",
        "kind": "decision",
        "was": "Committed to microservices",
    },
}
SAID = (
    "Hi, I am Alex and I am building a cache in Rust.",
    "Production runs PostgreSQL 15 with pgbouncer in front.",
    "We removed Redis. Cache invalidation bugs caused stale product prices.",
    "GraphQL looks nice, we are trying it.",
    "We are committed to microservices now.",
    "GraphQL is too slow for us: back to REST, it was reverted.",
    "Enough: all services are merged into a monolith.",
)


async def test_plumbing_what_was_said_at_the_start_is_known_at_turn_200(home: Path) -> None:
    async with worker_with_tools(
        home, folds=extractor(**{word.replace(" ", "_"): note for word, note in STORY.items()})
    ) as it:
        for text in SAID:
            await it.say(text)
            await fold(it)
        for number in range(200 - len(SAID)):
            await it.say(f"ordinary question number {number}")
            if number % 60 == 59:
                await fold(it, keep=1_000)
        await it.say("What did I say I am building, and with what?")
        known = system(it)
        assert "fact: Alex is building a cache in Rust" in known
        assert "Production runs PostgreSQL 15 with pgbouncer in front." in known, "verbatim, since nobody said 16"
        assert "PostgreSQL 16" not in known
        assert "Redis was removed, because cache invalidation bugs caused stale product prices" in known
        assert known.index("GraphQL is being tried") < known.index("GraphQL was reverted to REST")
        assert "All services merged into a monolith (before: Committed to microservices, " in known
        assert known.count("– no longer true)") == 2
        assert SAID[0] in last_user(it.server.bodies[-1]), "recalled in its own words too"


# --- recall and the tool ----------------------------------------------------------------------------------------------------------


async def test_what_was_said_in_an_ended_session_is_recalled_and_the_question_itself_is_not(
    home: Path, database_url: str
) -> None:
    async with worker_with_tools(home, url=database_url) as it:
        await it.say("The garage code is 4711, and the gate code 0815")
        session = await it.database.read(store.active, KEY)
        assert session is not None
        await it.database.write(store.end, session.id, EndReason.USER, it.app.clock())
        await index(it)
        await it.say("remind me: what was the code of the garage?")
        context, _, said = last_user(it.server.bodies[-1]).partition("\n\n")
        assert said == "remind me: what was the code of the garage?"
        assert "user: The garage code is 4711, and the gate code 0815" in context
        assert "remind me" not in context
        assert [m["content"] for m in await _journal(it)][:1] == ["remind me: what was the code of the garage?"], (
            "nothing is stored"
        )


async def test_what_is_not_indexed_yet_is_indexed_before_it_is_searched(home: Path, database_url: str) -> None:
    """After an import, or a start."""
    async with worker_with_tools(home, url=database_url) as it:

        def bring(conn: Connection) -> None:
            for ns_key, fact in ((KEY, "The garage code is 4711"), ("agent:main:telegram:dm:8", "nothing")):
                session = store.start(conn, SessionKey.parse(ns_key), 1, source="telegram")
                said = [Message(content=fact), *(Message(content=f"hello number {n}") for n in range(700))]
                store.append(conn, session.id, said, 1)
                store.end(conn, session.id, EndReason.IDLE, 2)

        await it.database.write(bring)
        await it.say("what was the code of the garage?")
        assert "user: The garage code is 4711" in last_user(it.server.bodies[-1])
        assert await it.database.read(message_index.unindexed) >= 700, "only what is searched is waited for"


async def test_what_another_process_forgets_is_recalled_no_more(home: Path, database_url: str) -> None:
    async with worker_with_tools(home, url=database_url) as it:
        await it.say("The garage code is 4711")
        session = await it.database.read(store.active, KEY)
        assert session is not None
        said = (await it.messages())[0].id
        note = await it.database.write(memory.note, session.ns, "The garage code is 4711", 1, src=[said])
        await it.database.write(store.end, session.id, EndReason.USER, it.app.clock())
        await index(it)
        await it.say("what was the code of the garage?")
        assert "user: The garage code is 4711" in last_user(it.server.bodies[-1])
        with closing(open_database(home, database_url)) as other:
            other.write_now(memory.forget, session.ns, note.id)
        await it.say("and now, the code of the garage?")
        assert "4711" not in str(it.server.bodies[-1]["messages"])
        with closing(open_database(home, database_url)) as other:
            other.write_now(memory.note, session.ns, "The garage code is 4711", 2)
        await it.say("once more: the code of the garage?")
        assert "user: The garage code is 4711" in last_user(it.server.bodies[-1]), "people may say it anew"


async def test_a_message_that_another_process_has_changed_or_taken_back_is_shown_as_it_is_now(
    home: Path, database_url: str
) -> None:
    """What is kept of messages and requests goes with them."""
    async with worker_with_tools(home, url=database_url) as it:
        for text in ("my code is 4711", "and my name is Ann", "my cat is Tom"):
            await it.say(text)
        session, first = await it.database.read(store.active, KEY), (await it.messages())[0]
        assert session is not None
        with closing(open_database(home, database_url)) as other:
            other.write_now(store.rewrite, first.id, "my code is 0815")
            other.write_now(store.take_back, session.id)
        await it.say("what do you know of me?")
        shown = str(it.server.bodies[-1]["messages"])
        assert "0815" in shown
        assert "4711" not in shown
        assert "Ann" in shown
        assert "Tom" not in shown


async def _journal(it: WorkerHarness) -> list[JSON]:
    return [{"content": message.content} for message in await it.messages()]


async def test_the_tool_leaves_out_its_own_run_and_all_results(home: Path, database_url: str) -> None:
    asked = calls(call("session_search", {"query": "garage code"}))
    async with worker_with_tools(home, [asked, "It is 4711.", asked, "Still 4711."], url=database_url) as it:
        it.server.script = ["noted", *it.server.script]  # type: ignore[misc]
        await it.say("The garage code is 4711")
        for question in ("What is the garage code?", "And the garage code once more?"):
            await it.say(question)
            result = str(it.server.bodies[-1]["messages"][-1]["content"])
            assert "user: The garage code is 4711" in result
            assert question not in result
            assert "session_search" not in result


async def test_long_passages_are_summarised_by_the_fast_model_and_raw_when_that_fails(home: Path) -> None:
    fails = [False]

    def script(body: JSON) -> Any:
        if "You read a part of an earlier conversation" in str(body["messages"][0]["content"]):
            return Failure(status=400, message="no") if fails[0] else "Ann said the garage code is 4711."
        answered = body["messages"][-1]["role"] == "tool"
        return (
            "done"
            if answered or "code?" not in last_user(body)
            else calls(call("session_search", {"query": "garage code"}))
        )

    async with worker_with_tools(home, script) as it:
        await it.say("The garage code is 4711")
        for number in range(12):
            await it.say(f"unrelated {number} {'words ' * 150}")
        await it.say("what is the garage code?")
        request = next(body for body in it.server.bodies if "You read a part" in str(body["messages"][0]))
        assert "Question: garage code" in request["messages"][1]["content"]
        assert "user: The garage code is 4711" in request["messages"][1]["content"]
        result = str(it.server.bodies[-1]["messages"][-1]["content"])
        assert "Summary: Ann said the garage code is 4711.\nIn their words:\n1 " in result
        fails[0] = True
        await it.say("once more, the code?")
        raw = str(it.server.bodies[-1]["messages"][-1]["content"])
        assert "Summary" not in raw
        assert "user: The garage code is 4711" in raw
        assert len(raw) < 6_000


async def test_no_fold_begins_between_the_steps_of_a_run_and_its_prompt_is_read_in_parts(home: Path) -> None:
    begun: list[asyncio.Task[Any]] = []
    texts = ("system", "You keep the memory of an assistant."), ("user", "tea " * 200)
    fold = ModelRequest(messages=[{"role": role, "content": text} for role, text in texts])

    async def work(_: object, __: Plain) -> str:
        begun.append(asyncio.create_task(it.app.side_work.aside(it.app.model, fold)))
        await asyncio.sleep(0.05)
        return f"{it.server.read_ahead + len(it.server.folded)} done"

    async with worker_in_process(home, [calls(call("work")), "Here you are."], tools=[tool("work", work)]) as it:
        await it.say("work for me")
        await asyncio.gather(*begun)
        assert it.server.bodies[-1]["messages"][-1]["content"] == "0 done"
        assert (it.server.read_ahead > 0, len(it.server.folded)) == (True, 1)


async def test_a_pasted_page_is_read_page_by_page_later(home: Path) -> None:
    page = "".join(f"This is sentence {number} of the page. " for number in range(2_320)).strip()
    offsets = iter([0, 12_000, 72_000])

    def script(body: JSON) -> Any:
        answered = body["messages"][-1]["role"] == "tool"
        if answered or "end of it" not in last_user(body):
            return "ok"
        return calls(call("session_search", {"message": 1, "offset": next(offsets)}))

    async with worker_with_tools(home, script) as it:
        await it.say(page)
        assert last_user(it.server.bodies[-1]).endswith(page)
        seen = ""
        for _ in range(3):
            await it.say("what stands at the end of it?")
            first = next(m["content"] for m in it.server.bodies[-1]["messages"] if "sentence 0 " in str(m["content"]))
            assert "[cut; the whole is message 1: session_search with message=1 reads it]" in first
            seen = str(it.server.bodies[-1]["messages"][-1]["content"])
        assert "This is sentence 2319 of the page." in seen


async def test_a_note_of_the_tool_names_its_message(home: Path) -> None:
    saves = calls(call("memory", {"action": "save", "text": "Ann drinks tea", "kind": "preference"}))
    async with worker_with_tools(home, [saves, "Noted.", "ok"]) as it:
        await it.say("remember that Ann drinks tea")
        [note] = await it.database.read(memory.open_notes, "agent:main")
        assert (note.src, note.kind) == ((1,), "preference")
        await it.say("hello")
        assert f"o{note.id} " in system(it)


# --- when folds fail ----------------------------------------------------------------------------------------------------------------


async def test_a_model_that_cannot_fold_for_a_day_leaves_the_prompt_bounded_with_a_line_about_the_gap(
    home: Path,
) -> None:
    async with worker_with_tools(home, folds=lambda _: Failure(status=503)) as it:
        sizes: list[int] = []
        for number in range(60):
            await it.say(f"message {number} {'word ' * 300}")
            sizes.append(len(str(it.server.bodies[-1]["messages"])))
            if number % 20 == 19:
                await fold(it, keep=2_000)
        assert max(sizes[40:]) < 1.1 * max(sizes[:40])
        context = last_user(it.server.bodies[-1])
        assert " older messages not yet summarised; session_search finds them]" in context
        gap = int(context.partition(" older messages")[0].rpartition("[")[2])
        shown = sum(m["role"] in {"user", "assistant"} for m in it.server.bodies[-1]["messages"])
        assert gap == 119 - shown


async def test_memory_that_is_off_shows_and_recalls_nothing_of_other_sessions(home: Path) -> None:
    async with worker_with_tools(home) as it:
        it.app.agents["main"] = replace(it.app.agents["main"], remembers=False)
        await it.database.write(memory.note, "agent:main", "Ann likes tea", 1)
        await it.say("The garage code is 4711")
        session = await it.database.read(store.active, KEY)
        assert session is not None
        await it.database.write(store.end, session.id, EndReason.USER, it.app.clock())
        await index(it)
        await it.say("what was the garage code?")
        assert "4711" not in str(it.server.bodies[-1])
        assert "likes tea" not in str(it.server.bodies[-1])


# --- isolation ----------------------------------------------------------------------------------------------------------------------


def chat(kind: ChatKind, number: str) -> Route:
    return Route(address=Address(platform=Platform.TELEGRAM, kind=kind, chat_id=number))


PLACES: dict[str, Callable[[], Route | None]] = {
    "agent:main:telegram:dm": lambda: chat(ChatKind.DM, "7"),
    "agent:main:telegram:dm:8": lambda: chat(ChatKind.DM, "8"),
    "agent:main:telegram:group:-1": lambda: chat(ChatKind.GROUP, "-1"),
    "agent:main:slack:channel:C1": lambda: None,
    "agent:main:api:laptop:one": lambda: None,
    "agent:main:api:laptop:two": lambda: None,
    "agent:main:api:phone:one": lambda: None,
    "agent:dep_x:thread:t1": lambda: None,
    "agent:main:response:laptop:resp_1": lambda: None,
}


async def test_a_secret_never_shows_in_any_other_namespace(home: Path, database_url: str) -> None:
    """Nine places with the same words; each has one secret, noted, folded, in an ended session and in the open one."""

    def script(body: JSON) -> Any:
        if body["messages"][-1]["role"] == "tool" or "password" not in last_user(body) or "tell" not in last_user(body):
            return "ok"
        return calls(
            call("session_search", {"query": "the launch password"}), call("memory", {"action": "list"}, id="c2")
        )

    def folds(body: JSON) -> Any:
        found = [(n, t) for n, t in _folded(body) if "launch word" in t]
        return _noted(found)

    async with worker_with_tools(home, script, url=database_url, folds=folds) as it:
        secrets = {key: f"swordfish{number}x" for number, key in enumerate(PLACES)}
        for key, route in PLACES.items():
            await it.say(f"the launch word is {secrets[key]}", key=key, route=route())
            await fold(it, key)
            session = await it.database.read(store.active, key)
            assert session is not None
            await it.database.write(store.end, session.id, EndReason.USER, it.app.clock())
            await it.say(f"by the way, the other launch word is {secrets[key]} too", key=key, route=route())
        await index(it)
        for key, route in PLACES.items():
            before = len(it.server.bodies)
            await it.say("tell me the launch word and the password", key=key, route=route())
            seen = str(it.server.bodies[before:])
            assert secrets[key] in seen
            for other, secret in secrets.items():
                assert other == key or secret not in seen, (key, other)


def _folded(body: JSON) -> list[tuple[int, str]]:
    from tests.integration.memory.folding import folded_lines

    return folded_lines(body)


def _noted(found: list[tuple[int, str]]) -> str:
    from tests.integration.memory.folding import answer, noted

    return answer(*(noted(text, number) for number, text in found), digest=" ".join(text for _, text in found))


@pytest.mark.parametrize("window", [4_096])
async def test_in_a_small_window_nothing_overflows_and_the_person_is_told(home: Path, window: int) -> None:
    page = "".join(f"This is sentence {number} of the page. " for number in range(2_320))
    async with worker_with_tools(home, settings={"context_window": window}) as it:
        await it.say(page)
        assert "I read " in (await it.sent())[-1]["text"]
        body = it.server.bodies[-1]
        assert len(str(body["messages"])) < window * 4


async def test_a_turn_asks_the_database_as_often_however_long_the_conversation_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for recall: five statements, once something is no longer in the prompt."""
    asked: list[str] = []
    recalled = sqlite.fetched

    def fetched(conn: Connection, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        asked.append(statement)
        return recalled(conn, statement, values)

    def on_statement(conn: Connection, cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    monkeypatch.setattr(sqlite, "fetched", fetched)
    event.listen(Engine, "before_cursor_execute", on_statement)
    try:
        async with worker_with_tools(home) as it:
            counts: list[int] = []
            for number in range(30):
                await it.say(f"question {number} about {'the garden and its trees ' * 60}")
                await index(it)
                asked.clear()
                await it.say(f"answer {number} about gardens")
                counts.append(len(asked))
    finally:
        event.remove(Engine, "before_cursor_execute", on_statement)
    # Once a second the worker also looks for what other processes have added, and now and then two steps share what they read.
    assert min(counts[-5:]) <= sorted(counts[:5])[2] + 5, counts
    assert sum("messages_scoped" in statement for statement in asked) == 2
