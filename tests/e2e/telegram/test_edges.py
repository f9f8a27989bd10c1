"""What must not wear out a chat: a button that turns for ever, text that shows nothing, an event that cannot be taken, a reload in mid-send."""

import asyncio
from pathlib import Path

from sqlalchemy import Connection, text

from gateway.config.reading import load
from sessions import outbox
from sessions.clock import now_ms
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Content, Inbound
from sessions.records import Route
from tests.e2e.telegram.daemon import Scene, daemon, scene, settled, write_config
from tests.fakes.telegram_server import TelegramServer

ADDRESS = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7")


async def sends(s: Scene, said: str) -> None:
    await s.app.database.write(
        outbox.put, Route(address=ADDRESS), Content(text=said), now_ms(), dedup_key=f"test:{said}", session_key=""
    )


def unsent(conn: Connection) -> list[tuple[str, str]]:
    return [
        (row[0], row[1]) for row in conn.execute(text("SELECT state, last_error FROM outbox WHERE state != 'sent'"))
    ]


async def test_a_tapped_button_stops_turning(home: Path) -> None:
    async with scene(home) as s:
        await s.answer_to("ask me something")
        card = next(m for m in s.server.chat(s.dm.id) if m.buttons)
        tap = s.server.taps(s.ann, card, card.buttons[0])
        await s.server.until(lambda: s.server.taps_open[tap] is not None)


async def test_markdown_that_shows_nothing_is_sent_as_it_stands(home: Path) -> None:
    async with scene(home) as s:
        await sends(s, "[1]: http://example.org")
        assert await s.server.answered(s.dm.id) == ["[1]: http://example.org"]


async def test_what_is_empty_is_a_dead_letter_and_the_chat_goes_on(home: Path) -> None:
    async with scene(home) as s:
        await sends(s, " ")
        assert "practice model" in await s.answer_to("hello")
        await settled(s.app.database)
        assert await s.app.database.read(unsent) == [("dead", "there is nothing in it that could be sent")]


async def test_an_event_that_cannot_be_taken_keeps_nobody_else_out(home: Path) -> None:
    async with scene(home, allowed_users=["*"]) as s:
        nameless = Inbound(dedup_key="x", address=ADDRESS, sender=Sender(id=""), message_id="1", text="hello")
        await s.serving.chats.running["telegram"].deliver(nameless)
        assert "practice model" in await s.answer_to("hello")


async def test_a_platform_that_is_stopped_finishes_what_it_is_sending(home: Path) -> None:
    async with scene(home) as s:
        gate = asyncio.Event()
        held = s.server.fail("sendMessage", wait=gate)
        await sends(s, "hello")
        await s.server.until(lambda: held.times == 0)
        stopping = asyncio.create_task(s.serving.chats.stop("telegram"))
        await asyncio.sleep(0)
        gate.set()
        await stopping
        assert s.server.answers(s.dm.id) == ["hello"]
        assert await s.app.database.read(unsent) == []


async def test_who_may_talk_is_taken_over_without_a_new_connection(home: Path) -> None:
    async with scene(home) as s:
        before = s.serving.chats.running["telegram"]
        write_config(home, s.server, allowed_users=["8"], owner="7")
        await s.serving.reload(load(home, {}))
        assert s.serving.chats.running["telegram"] is before
        s.says("hello")
        assert "hermes pair approve" in (await s.server.answered(s.dm.id))[0]


async def test_the_menu_is_offered_to_who_may(home: Path) -> None:
    async with TelegramServer() as server:
        server.dm(server.user(7, "Ann"))
        server.dm(server.user(8, "Bob"))
        async with daemon(home, server):
            await server.until(lambda: server.commands)
            assert all("7" in scope and "new" in str(menu) for scope, menu in server.commands.items())


async def test_a_preview_is_never_left_behind_however_quick_the_answer_is(home: Path) -> None:
    async with scene(home) as s:
        group = s.server.group()
        gate = asyncio.Event()
        held = s.server.fail("sendMessage", wait=gate)
        live = s.app.live
        ended = asyncio.Event()
        live.listen("*", lambda moment: ended.set() if moment.kind == "ended" else None)
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        await ended.wait()
        await s.server.until(lambda: held.times == 0)
        gate.set()
        await s.server.until(lambda: s.server.answers(group.id))
        await settled(s.app.database)
        assert len(s.server.answers(group.id)) == 1


async def test_the_start_screen_says_who_the_bot_is_or_what_is_wrong(home: Path) -> None:
    async with scene(home) as s:
        assert await s.serving.chats.lines() == ["telegram  this is @hermes_bot (Hermes)"]
    async with TelegramServer() as server:
        server.revoke()
        async with daemon(home, server) as (_, served):
            (line,) = await served.chats.lines()
            assert "token" in line
