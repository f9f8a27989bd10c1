"""What people see in their chats."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from gateway.agent.models.interface import Answer, ModelRequest, OnToken
from gateway.config.reading import load
from sessions import people
from sessions.clock import now_ms
from tests.e2e.telegram.daemon import daemon, scene
from tests.fakes.telegram_server import TelegramServer


class Gated:
    """A model that answers once the gate is open."""

    def __init__(self, model: Any, gate: asyncio.Event) -> None:
        self._model = model
        self._gate = gate
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def ask(self, request: ModelRequest, on_token: OnToken | None = None) -> Answer:
        self.asked += 1
        await self._gate.wait()
        return await self._model.ask(request, on_token)


async def test_a_direct_message_is_answered_once(home: Path) -> None:
    async with scene(home) as s:
        assert "practice model" in await s.answer_to("hello")
        assert len(s.server.answers(s.dm.id)) == 1


async def test_a_command_is_answered_at_once(home: Path) -> None:
    async with scene(home) as s:
        assert "/new" in await s.answer_to("/help")
        assert "Did you mean /status" in await s.answer_to("/staus")
        assert "is broken" in await s.answer_to("/etc/hosts is broken")


async def test_a_mention_in_a_group_is_answered_where_it_was_asked(home: Path) -> None:
    async with scene(home) as s:
        group = s.server.group(topics=[11])
        s.server.user_says(group, s.ann, "nobody is asked here", topic=11)
        asked = s.server.user_says(group, s.ann, "@hermes_bot hello", topic=11)
        await s.server.answered(group.id)
        (answer,) = [m for m in s.server.chat(group.id) if m.from_bot]
        assert answer.topic == 11
        assert answer.reply_to == asked.id


async def test_what_is_said_in_a_group_before_is_context_with_its_speaker(home: Path) -> None:
    async with scene(home) as s:
        bob = s.server.user(8, "Bob")
        group = s.server.group()
        s.server.user_says(group, bob, "the demo is on friday")
        s.server.user_says(group, s.ann, "when is lunch")
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        await s.server.answered(group.id)
        rows = await s.app.database.read(_contents)
        assert "[Ann] when is lunch" in rows
        assert "[Ann] hello" in rows


def _contents(conn: Connection) -> list[str]:
    return [str(row[0]) for row in conn.execute(text("SELECT content FROM messages ORDER BY id"))]


async def test_a_stranger_gets_one_code_and_costs_nothing(home: Path) -> None:
    async with scene(home) as s:
        eve = s.server.user(66, "Eve")
        chat = s.server.dm(eve)
        s.server.user_says(chat, eve, "hello")
        (answer,) = await s.server.answered(chat.id)
        assert "hermes pair approve" in answer
        s.server.user_says(chat, eve, "hello again")
        await s.answer_to("hello")
        assert len(s.server.answers(chat.id)) == 1
        assert await s.app.database.read(_contents) != []
        assert "hello again" not in await s.app.database.read(_contents)


async def test_a_question_is_answered_by_a_button_or_in_words(home: Path) -> None:
    async with scene(home) as s:
        assert "colour" in await s.answer_to("ask me something")
        card = next(m for m in s.server.chat(s.dm.id) if m.buttons)
        s.server.taps(s.ann, card, card.buttons[0])
        answers = await s.server.answered(s.dm.id, 2)
        assert "Red" in answers[-1]
        await s.server.until(lambda: "Answered by Ann" in card.text)
        assert card.buttons == []
        await s.answer_to("ask me something")
        assert "violet" in await s.answer_to("violet")


@pytest.mark.parametrize("asked", ["write a long answer"])
async def test_a_long_answer_arrives_whole(home: Path, asked: str) -> None:
    async with scene(home) as s:
        assert await s.answer_to(asked)


async def test_files_are_saved_named_and_shown(home: Path) -> None:
    async with scene(home) as s:
        answer = await s.answer_to("look at this", document=("report.txt", b"figures", "text/plain"))
        assert "inbox/report.txt" in answer
        (saved,) = (home / "workspace").rglob("report.txt")
        assert saved.read_bytes() == b"figures"
        assert "inbox/photo" in await s.answer_to("and this", photo=b"\x89PNG" + b"0" * 99)
        assert "voice message" in await s.answer_to("", voice=b"OggS")


async def test_an_edit_while_it_waits_counts_and_later_is_said(home: Path) -> None:
    async with scene(home) as s:
        said = s.says("hello")
        await s.server.answered(s.dm.id)
        s.server.edits(s.dm, said, "hello there")
        answers = await s.server.answered(s.dm.id, 2)
        assert "already answered" in answers[-1]


async def test_other_bots_and_unreadable_kinds(home: Path) -> None:
    async with scene(home) as s:
        robot = s.server.user(99, "Robo", is_bot=True)
        s.server.user_says(s.dm, robot, "hello")
        s.says("", story={"chat": s.dm.wire(), "id": 1})
        assert "cannot read this kind" in (await s.server.answered(s.dm.id))[0]
        assert len(s.server.answers(s.dm.id)) == 1


async def test_the_first_with_the_start_code_is_the_owner(home: Path) -> None:
    async with scene(home, allowed_users=[]) as s:
        s.says("hello")
        await s.server.answered(s.dm.id)
        code = await s.app.database.write(people.owner_code, "telegram", now_ms())
        assert "You are the owner" in await s.answer_to(f"/start {code.replace('-', '')}")
        assert "practice model" in await s.answer_to("hello")
        assert await s.app.database.read(runs_of, "agent:main:telegram:dm") == 1


def runs_of(conn: Connection, key: str) -> int:
    return int(conn.execute(text("SELECT count(*) FROM runs WHERE session_key = :key"), {"key": key}).scalar_one())


async def test_doubled_reordered_and_poisoned_updates(home: Path) -> None:
    async with scene(home) as s:
        s.says("hello one")
        s.server.double()
        s.server.poison()
        s.says("hello two")
        s.server.reorder()
        await s.server.until(
            lambda: (
                "hello two" in "".join(s.server.answers(s.dm.id)) and "hello one" in "".join(s.server.answers(s.dm.id))
            )
        )
        rows = await s.app.database.read(_contents)
        assert sum(row == "hello one" for row in rows) == 1
        assert sum(row == "hello two" for row in rows) == 1


async def test_what_was_said_while_it_was_down_is_answered_once(home: Path) -> None:
    async with TelegramServer() as server:
        ann = server.user(7, "Ann")
        dm = server.dm(ann)
        async with daemon(home, server):
            server.user_says(dm, ann, "hello")
            await server.answered(dm.id)
        server.user_says(dm, ann, "are you there")
        async with daemon(home, server):
            answers = await server.answered(dm.id, 2)
        assert "are you there" in answers[1]
        async with daemon(home, server):
            await server.until(lambda: len(server.polled_from) > 0)
        assert len(server.answers(dm.id)) == 2
        assert server.violations == []


async def test_a_message_during_a_run_gets_a_reaction_and_is_taken_into_account(home: Path) -> None:
    async with scene(home) as s:
        gate = asyncio.Event()
        slow = Gated(s.app.model, gate)
        s.app.model = slow  # pyright: ignore
        first = s.says("hello")
        await s.server.until(lambda: slow.asked)
        second = s.says("and also this")
        await s.server.until(lambda: second.reaction == "👀")
        gate.set()
        await s.server.answered(s.dm.id)
        await s.server.until(lambda: second.reaction is None)
        assert first.reaction is None
        assert "and also this" in await s.app.database.read(_contents)


async def test_the_first_screen_says_how_to_become_the_owner(home: Path) -> None:
    async with scene(home, allowed_users=[]) as s:
        lines = await s.serving.chats.lines()
        code = re.search(r"Send @hermes_bot: /start (\w{8}) and you are its owner", "\n".join(lines))
        assert code, lines
        assert "You are the owner now" in await s.answer_to(f"/start {code[1]}")


async def test_a_platform_that_a_reload_starts_says_it_too(home: Path) -> None:
    async with scene(home, allowed_users=[]) as s:
        again = await s.serving.reload(load(home, {"HERMES_PLATFORMS__TELEGRAM__REQUIRE_MENTION": "false"}))
        assert again == []  # nothing was restarted
        await s.serving.reload(load(home, {"HERMES_PLATFORMS__TELEGRAM__ENABLED": "false"}))
        lines = await s.serving.reload(load(home, {}))
        assert "you are its owner" in "\n".join(lines)


async def test_a_model_that_is_away_is_in_the_status(home: Path) -> None:
    async with scene(home) as s:
        s.app.outages.mark_away(None, "connection refused", s.app.clock())
        async with asyncio.timeout(30):
            while "The model has not answered since" not in (told := await s.answer_to("/status")):
                await asyncio.sleep(0.5)  # the gateway reports every five seconds
        assert "connection refused" in told
