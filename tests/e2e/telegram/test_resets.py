"""A conversation starts afresh: what is saved before, what the chat sees of it, and the way back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from gateway.agent.prompts import load_prompt
from gateway.config.reading import load
from gateway.texts import say
from sessions import store
from sessions.records import EndReason, Session
from sessions.runs.farewells import WAIT_MS
from tests.conftest import HandClock
from tests.e2e.telegram.daemon import Scene, answering, save
from tests.fakes.model_replies import Reply, call, calls
from tests.fakes.model_server import ModelServer

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
KEY = "agent:main:telegram:dm"
NOTE = "Ann moves to Oslo in May."
IDLE = {"session_reset": {"mode": "idle", "idle_minutes": 60, "timezone": "UTC"}}


class ResetAgent:
    """Answers everything, and saves one note when it is asked to say farewell."""

    def __init__(self) -> None:
        self.farewells: list[dict[str, Any]] = []
        self.prompts: list[list[dict[str, Any]]] = []
        self.hold: asyncio.Event | None = None

    def __call__(self, body: dict[str, Any]) -> Reply:
        messages = body["messages"]
        last = messages[-1]
        users = [str(each["content"]) for each in messages if each["role"] == "user"]
        if load_prompt("farewell")[:40] in users[-1]:
            self.farewells.append(body)
            if last["role"] == "tool":
                return Reply(text="I saved it, and nobody reads this.")
            save_it = calls(call("memory", {"action": "save", "text": NOTE}))
            return save_it if self.hold is None else calls(*save_it.tool_calls, before=self.hold.wait)
        self.prompts.append(messages)
        return Reply(text=f"answer to {users[-1].rpartition(chr(10))[2]}")


@asynccontextmanager
async def at_home(
    home: Path, clock: HandClock, **sections: Any
) -> AsyncGenerator[tuple[Scene, ResetAgent, ModelServer]]:
    agent = ResetAgent()
    async with ModelServer(agent) as model:
        from tests.e2e.telegram.daemon import scene

        chosen = {"model": {"base_url": model.url, "name": "big", "api_key": "k"}, **(sections or IDLE)}
        async with scene(home, clock=clock, sections=chosen) as s:
            yield s, agent, model


async def sessions_of(s: Scene) -> list[Session]:
    """Newest first."""
    return await s.app.database.read(lambda conn: store.recent(conn, key=KEY))


async def until_reset(s: Scene, count: int = 1) -> None:
    """Until so many sessions have ended by a reset."""
    async with asyncio.timeout(30):
        while sum(each.end_reason in {EndReason.IDLE, EndReason.DAILY} for each in await sessions_of(s)) < count:
            await s.serving.resets.tick()
            await asyncio.sleep(0.01)


def kept(name: str, **values: str) -> str:
    return f"_{say(name, **values)}_"


async def test_what_matters_is_saved_before_and_the_next_conversation_knows_it(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, _):
        assert await s.answer_to("I move to Oslo in May") == "answer to I move to Oslo in May"
        await s.serving.resets.tick()
        clock.tick(60 * MINUTE)
        await s.serving.resets.tick()
        assert agent.farewells == []  # a silence of sixty minutes is not more than sixty minutes
        clock.tick(1)
        await until_reset(s)
        assert [tool["function"]["name"] for tool in agent.farewells[0]["tools"]] == ["memory", "skill"]
        assert len(agent.farewells) == 2
        answer = await s.answer_to("hello")
        line = f"{say('session.reset_idle', idle='1 h')} I kept 1 note. {say('session.reset_back')}"
        assert answer == f"{line}\n\nanswer to hello"
        assert NOTE in agent.prompts[-1][0]["content"]
        assert not any("I move to Oslo" in str(each["content"]) for each in agent.prompts[-1][1:])
        assert await s.answer_to("again") == "answer to again"
        assert [each.end_reason for each in await sessions_of(s)] == [None, EndReason.IDLE]
        assert len(s.server.answers(s.dm.id)) == 3


async def test_the_way_back_stays(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, _):
        await s.answer_to("the first one")
        clock.tick(2 * HOUR)
        await until_reset(s)
        await s.answer_to("the second one")
        back = await s.answer_to("/resume 1")
        assert back.startswith("Back in “the first one” from")
        assert "You last said: “the first one”" in back
        await s.serving.resets.tick()
        clock.tick(1)
        assert await s.answer_to("where were we") == "answer to where were we"
        assert any("the first one" in str(each["content"]) for each in agent.prompts[-1])
        old, new = await sessions_of(s)  # the one with the latest activity first
        assert (old.ended_at, new.end_reason) == (None, EndReason.USER)
        clock.tick(2 * HOUR)
        farewells = len(agent.farewells)
        await until_reset(s)
        assert len(agent.farewells) > farewells  # there was something new to save


async def test_a_message_after_the_due_time_is_the_first_of_the_next_whoever_is_quicker(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, _):
        await s.answer_to("one")
        clock.tick(60 * MINUTE)
        assert await s.answer_to("a moment before") == "answer to a moment before"
        clock.tick(60 * MINUTE + 1)
        answer = await s.answer_to("a moment after")
        assert answer.startswith(f"{say('session.reset_idle', idle='1 h')} I kept 1 note. ")
        assert answer.endswith("\n\nanswer to a moment after")
        assert NOTE in agent.prompts[-1][0]["content"]
        new, old = await sessions_of(s)
        assert (old.end_reason, new.end_reason) == (EndReason.IDLE, None)


async def test_a_farewell_that_hangs_holds_nobody_up_and_is_given_later(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, _):
        await s.answer_to("one")
        agent.hold = asyncio.Event()
        clock.tick(2 * HOUR)
        s.says("two")
        await s.server.until(lambda: agent.farewells)
        clock.tick(WAIT_MS - 1)
        await s.app.dispatch.poll()
        assert len(agent.prompts) == 1
        clock.tick(1)
        await s.server.answered(s.dm.id, 2)
        unsaved = f"{say('session.reset_idle', idle='2 h')} {say('session.reset_back')}"
        assert s.server.answers(s.dm.id)[-1] == f"{unsaved}\n\nanswer to two"
        agent.hold.set()
        await s.server.until(lambda: len(agent.farewells) == 2)
        async with asyncio.timeout(30):
            while not await s.app.database.read(_notes):
                await asyncio.sleep(0.01)
        assert await s.answer_to("three") == "answer to three"
        assert NOTE in agent.prompts[-1][0]["content"]


def _notes(conn: Connection) -> int:
    return int(conn.execute(text("SELECT count(*) FROM observations")).scalar_one())


async def test_new_gives_the_same_turn_in_the_background(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, agent, _):
        await s.answer_to("one")
        agent.hold = asyncio.Event()
        assert await s.answer_to("/new") == say("session.new")
        assert await s.answer_to("two") == "answer to two"
        agent.hold.set()
        await s.server.until(lambda: len(agent.farewells) == 2)
        assert await s.answer_to("/new") == say("session.new")
        assert await s.answer_to("/new") == say("session.is_new")
        await s.server.until(lambda: len(agent.farewells) == 4)
        assert await s.answer_to("three") == "answer to three"
        assert len(agent.farewells) == 4  # nothing was said in the third one


async def test_the_status_says_when_and_a_saved_file_changes_it(home: Path, clock: HandClock):
    async with at_home(home, clock) as (s, _, __):
        await s.answer_to("one")
        assert "Next reset: 16:06." in await s.answer_to("/status")
        config = (home / "config.yaml").read_text()
        both = "idle_minutes: 5\n  overrides: [{platform: slack, idle_minutes: 7}]"
        save(home / "config.yaml", config.replace("idle_minutes: 60", both))
        clock.tick(10 * MINUTE)
        changed = "session_reset.idle_minutes 60 → 5, session_reset.overrides changed"
        assert await s.serving.reload(load(home, {})) == [f"{changed}: 1 session becomes due now"]
        assert "Next reset: with your next message." in await s.answer_to("/status")
        await until_reset(s)


@pytest.mark.parametrize("mode", ["none", "daily"])
async def test_other_policies(home: Path, clock: HandClock, mode: str):
    section = {"session_reset": {"mode": mode, "at_hour": 4, "timezone": "UTC", "notify": mode == "none"}}
    async with at_home(home, clock, **section) as (s, _, __):
        await s.answer_to("one")  # on 15 June 2025 at 15:06
        clock.tick(12 * HOUR)
        assert await s.answer_to("two") == "answer to two"
        clock.tick(54 * MINUTE)
        await s.serving.resets.tick()
        assert await s.answer_to("three") == "answer to three"  # and nobody is told with notify: false
        ended = [each.end_reason for each in await sessions_of(s)]
        assert ended == ([None] if mode == "none" else [None, EndReason.DAILY])


async def test_answers_that_are_questions_and_drafts_have_the_line_too(home: Path, clock: HandClock):
    script = [
        "answer to one",
        calls(call("memory", {"action": "list"})),
        "done",
        calls(call("ask_human", {"question": "Which colour?", "options": ["red", "blue"]})),
    ]
    async with answering(home, *script, clock=clock) as (s, _):
        await s.answer_to("one")
        clock.tick(25 * HOUR)
        s.says("two")
        answers = await s.server.answered(s.dm.id, 2)
        assert answers[-1].startswith("New conversation: nothing was said here for 25 h. /resume goes back")
        assert "Which colour?" in answers[-1]
