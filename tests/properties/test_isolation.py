"""Memory belongs to one namespace and never leaves it: whatever was said where, a secret of one namespace is in no prompt, search result,
list of notes, file, fold or export of another. The store, the tools and the making of prompts are the real ones."""

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, func, select

from gateway.agent.memory.fold import fold_request
from gateway.agent.profile import profile_of
from gateway.agent.tokens import Tokens
from gateway.agent.tools.registry import Toolbox, ToolContext
from gateway.runs.request import Requests, take_snapshot
from sessions import memory, runs, store
from sessions.db import Database
from sessions.db.schema import messages
from sessions.export import conversations, export_session
from sessions.files import folder_name
from sessions.keys import SessionKey
from sessions.memory import NewObservation, vectors
from sessions.memory.vectors import QueryVector
from sessions.records import EndReason, InboxRow, Message, Session
from sessions.runs import ModelAnswer, Opening
from sessions.search import message_index
from tests.app import give_tools, make_app

KEYS = (
    "agent:main:telegram:dm",  # of the owner: one memory with the terminal and the threads of the main agent
    "agent:main:cli:home",
    "agent:main:thread:t{0}",
    "agent:main:telegram:dm:22{0}",
    "agent:main:discord:dm:22{0}",
    "agent:main:whatsapp:dm:4917{0}",
    "agent:main:telegram:group:-5{0}",
    "agent:main:telegram:group:-5{0}:thread:7",  # one memory with its group
    "agent:main:telegram:group:-5{0}:user:7",
    "agent:main:slack:channel:C{0}",
    "agent:main:api:laptop:room{0}",
    "agent:main:api:phone:room{0}",
    "agent:main:api:laptop:room{0}:1",
    "agent:main:response:laptop:resp_{0}",
    "agent:dep_{0}:thread:t{0}",
    "agent:main:job:j{0}",
)
WORDS = ("garage", "code", "walrus", "deploy", "friday", "the")
QUERIES = ("garage code", "walrus", '"garage code"', "gar* AND code", "secret", "walrus NOT deploy")
_SECRET = re.compile(r"secret\d+of(\d+)x")
_TOOLS = Toolbox.of(["memory", "session_search", "files", "skill"])
_NUMBERS = itertools.count(1)

where = st.integers(0, len(KEYS) - 1)
steps = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "say", "fold", "note", "file", "skill", "end", "child", "delete"]),
        where,
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    ),
    min_size=6,
    max_size=24,
)


class IsolationHarness:
    """One more set of conversations in a store that holds those of the examples before it."""

    def __init__(self, database: Database, home: Path) -> None:
        number = next(_NUMBERS)
        self.database = database
        self.keys = [SessionKey.parse(key.format(number)) for key in KEYS]
        owners = list(dict.fromkeys(key.namespace for key in self.keys))
        self.owner = {ns: 1_000 * (number if ns != owners[0] else 0) + place for place, ns in enumerate(owners)}
        self.app = make_app(home, database)
        give_tools(self.app, _TOOLS.tools, "You help.")

    def secret(self, ns: str) -> str:
        return f"secret{next(_NUMBERS)}of{self.owner[ns]}x"

    async def tell(self, key: SessionKey, text: str) -> str:
        """Through the inbox and a run. Returns the request that the model would get."""
        new = InboxRow(dedup_key=f"isolation:{next(_NUMBERS)}", session_key=str(key), messages=[Message(content=text)])
        await self.database.write(runs.accept, new, Opening(), self.app.clock())
        run = await self.database.write(runs.claim, str(key), "me", Opening(), self.app.clock(), lease_ms=60_000)
        assert run is not None
        await self.database.write(runs.take_in_new_messages, run, self.app.clock())
        seen = await self.database.read(take_snapshot, run.id, "", self.app.tails, self.app.views)
        profile = profile_of(self.app, run, seen.session)
        request = await Requests(self.app, run.id).build(seen, profile, profile.toolbox)
        assert await self.database.write(runs.finish, run, ModelAnswer(text="noted"), self.app.clock(), step=0)
        return json.dumps(list(request.messages))

    async def use(self, key: SessionKey, tool: str, **arguments: Any) -> str:
        session = await self.session(key)
        place = ToolContext(
            session=session,
            database=self.database,
            workspace=self.app.workspace(session.ns),
            skills=self.app.skills,
            outgoing=self.app.outgoing,
            clock=self.app.clock,
            embed=_alike,
            idem_key=str(next(_NUMBERS)),
            run_id="tool",
        )
        found = _TOOLS.tools.get(tool)
        assert found is not None
        return str(await found.run(place, json.dumps(arguments)))

    async def session(self, key: SessionKey) -> Session:
        found = await self.database.read(store.active, str(key))
        if found is None:
            await self.tell(key, "hello")
            found = await self.database.read(store.active, str(key))
        assert found is not None
        return found

    async def do(self, what: str, key: SessionKey, text: str) -> None:
        session = await self.session(key)
        secret, now = self.secret(key.namespace), self.app.clock()
        match what:
            case "say":
                await self.tell(key, f"{text} {secret}")
            case "fold":
                await self.database.write(_fold, session, f"{text} {secret}", now)
            case "note":
                await self.use(key, "memory", action="save", text=f"{text} {secret}")
            case "file":
                await self.use(key, "files", action="write", path="plan.md", content=f"{text} {secret}")
            case "skill":
                await self.use(
                    key, "skill", action="save", name="plan", content=f"---\ndescription: {text} {secret}\n---\n"
                )
            case "end":
                await self.database.write(store.end, session.id, EndReason.USER, now)
            case "child":
                await self.database.write(store.continue_in_child, session, now)
            case _:
                await self.database.write(store.delete_session, session.id)

    async def seen_from(self, key: SessionKey) -> list[str]:
        """All that can be read there."""
        session = await self.session(key)
        others = [folder_name(other.namespace) for other in self.keys if other.namespace != key.namespace]
        newest = await self.database.read(lambda conn: conn.scalar(select(func.max(messages.c.id)))) or 0
        found = [await self.tell(key, "what was that secret code of the garage, and the walrus?")]
        found += [await self.use(key, "session_search", query=query) for query in QUERIES]
        found += [await self.use(key, "session_search", message=newest - back) for back in range(0, 40, 5)]
        found.append(await self.use(key, "memory", action="list"))
        found.append(await self.use(key, "skill", action="list"))
        found.append(await self.use(key, "skill", action="view", name="plan"))
        for path in ("plan.md", f"../{others[0]}/plan.md", f"/{others[-1]}/plan.md"):
            found.append(await self.use(key, "files", action="read", path=path))
        found.append(await self.use(key, "files", action="list", path="."))
        found.append(await self.database.read(_rest, session))
        return found


async def _alike(_: str) -> QueryVector:
    """To this model everything means the same."""
    return QueryVector(model="alike", vector=[1.0])


def _embed(conn: Connection) -> None:
    for note in vectors.missing(conn, "alike", 1_000):
        vectors.put(conn, note.ns, "alike", {note.id: vectors.packed([1.0])})


def _fold(conn: Connection, session: Session, text: str, now: int) -> None:
    """As the worker commits what a model has found."""
    material = memory.material(conn, session.id, keep=0, most=6_000)
    if material is None:
        return
    note = NewObservation(kind="fact", text=text, src=(material.messages[0].id,), asked_as=(f"which walrus {text}?",))
    assert memory.commit(conn, material, [note], f"They spoke of {text}.", now) == 1


def _rest(conn: Connection, session: Session) -> str:
    """What the next fold would be asked, the export, the notes, and searches as the command line and recall do them."""
    material = memory.material(conn, session.id, keep=0, most=6_000)
    asked = [] if material is None else fold_request(material, Tokens(), model=None, most=6_000).messages
    exported = conversations(conn, session=session)
    lines = [line.text for line in memory.lines(conn, session.ns)]
    hits = [
        f"{hit.message.content} {hit.session.title}"
        for query in QUERIES
        for hit in message_index.search(conn, query, ns=session.ns, limit=50)
    ]
    return json.dumps([list(asked), [export_session(conn, number) for number in exported], lines, hits])


async def _check(harness: IsolationHarness, history: list[tuple[str, int, str]]) -> None:
    for place, key in enumerate(harness.keys):  # so that there is a past everywhere
        await harness.do("say", key, WORDS[place % len(WORDS)])
        await harness.do("end", key, "")
    for what, place, text in history:
        await harness.do(what, harness.keys[place], text)
    await harness.database.write(_embed)
    while await harness.database.write(message_index.index_some):
        pass
    for key in harness.keys:
        mine = str(harness.owner[key.namespace])
        for text in await harness.seen_from(key):
            strangers = {found for found in _secrets(text) if found != mine}
            assert not strangers, f"{key} sees secrets of {strangers}: {text[:2_000]}"


def _secrets(text: str) -> Iterator[str]:
    return (match[1] for match in _SECRET.finditer(text))


def test_no_secret_of_a_namespace_is_seen_in_another(database: Database, home: Path) -> None:
    # Shrinking takes minutes.
    @settings(max_examples=3 if database.dialect == "sqlite" else 1, deadline=None, phases=[Phase.generate])
    @given(history=steps)
    def check(history: list[tuple[str, int, str]]) -> None:
        asyncio.run(_check(IsolationHarness(database, home), history))

    check()
