"""What people see in their chats, on every platform alike."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from adapters.testing.people import SentFile
from gateway.app import open_app, running
from gateway.config.reading import load
from gateway.context import App
from gateway.daemon import Role, serving
from sessions import people
from sessions.clock import now_ms
from tests.e2e.platforms.driver import Driver
from tests.e2e.platforms.scene import answering, scene, write_config
from tests.e2e.telegram.daemon import Gate, of_a_team, settled
from tests.fakes.model_replies import Reply, call, calls
from tests.fakes.model_server import OPUS, ModelServer

LONG = "\n\n".join(
    f"## Part {n}\n\n" + "Some **bold** words and `code` here. " * 40 + f"\n\n- one\n- two {n}" for n in range(8)
)


def _said_by_users(conn: Connection) -> list[str]:
    query = "SELECT content FROM messages WHERE role = 'user' ORDER BY id"
    return [str(row[0]) for row in conn.execute(text(query))]


async def test_a_direct_message_is_answered_once(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        assert "practice model" in await s.answer_to("hello")
        assert len(driver.said_by_bot(driver.dm())) == 1
        keys = await s.app.database.read(lambda conn: list(conn.scalars(text("SELECT session_key FROM sessions"))))
        whose = f":{driver.owner_id}" if driver.name == "whatsapp" else ""
        assert keys == [f"agent:main:{driver.name}:dm{whose}"]


async def test_in_a_group_only_a_mention_is_answered_and_the_rest_is_context(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        group = driver.group()
        driver.says(group, "the demo is on friday")
        asked = driver.says(group, driver.mention("hello"))
        await s.answers(group, 1)
        (answer,) = driver.said_by_bot(group)
        assert answer.reply_to == asked.id or answer.thread == asked.id
        said = await s.app.database.read(_said_by_users)
        assert said == ["[Ann] the demo is on friday", "[Ann] hello"]
        keys = await s.app.database.read(lambda conn: list(conn.scalars(text("SELECT session_key FROM sessions"))))
        assert keys == [f"agent:main:{driver.name}:{driver.group_kind}:{group.id}"]


async def test_in_a_thread_the_answer_stays_in_it(home: Path, driver: Driver) -> None:
    if not driver.has_threads:
        pytest.skip("there are no threads")
    async with scene(home, driver) as s:
        group = driver.group()
        root = driver.says(group, "what do we do today?")
        driver.says(group, driver.mention("hello"), thread=root)
        thread = driver.thread_of(group, root)
        await s.answers(thread, 1)
        assert all(said.thread == driver.thread_id(root) for said in driver.said_by_bot(thread))


async def test_commands(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        dm = driver.dm()
        driver.command(dm, "/help")
        assert f"{driver.command_prefix}new –" in (await s.answers(dm, 1))[-1]
        assert "is broken" in await s.answer_to("/etc/hosts is broken")


async def test_files_and_voice_come_in(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        report = SentFile("report.txt", b"figures", "text/plain")
        assert "inbox/report.txt" in await s.answer_to("look at this", file=report)
        (saved,) = (home / "workspace").rglob("report.txt")
        assert saved.read_bytes() == b"figures"
        picture = SentFile("shot.png", b"\x89PNG\r\n\x1a\n" + b"0" * 99, "image/png")
        assert "picture" in await s.answer_to("and this", file=picture)
        voice = SentFile("voice.ogg", b"OggS", "audio/ogg", voice=True)
        assert "voice message" in await s.answer_to("", file=voice)


async def test_a_file_is_fetched_by_a_worker_that_was_never_connected(
    home: Path, driver: Driver, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with driver.server, ModelServer(["I see it."]) as model, AsyncExitStack() as stack:

        async def start(name: str, role: Role) -> App:
            (home / name).mkdir()
            write_config(home / name, driver, sections=of_a_team(model, postgres_url))
            app = await stack.enter_async_context(
                open_app(home / name, load(home / name, {}), serves=role != "ingress")
            )
            served = await stack.enter_async_context(serving(app, role=role))
            await stack.enter_async_context(running(app))
            if role == "ingress":
                driver.connected_to(served.url)
            return app

        await start("a", "ingress")
        worker = await start("b", "worker")
        await driver.until_ready()
        if (
            driver.name == "discord"
        ):  # its address has run out: a new one is asked for, by a client that is not connected
            driver.server.fail("download", status=404, body={"message": "gone"})
        report = SentFile("report.txt", b"figures", "text/plain")
        driver.says(driver.dm(), "look at this", file=report)
        await driver.server.until(lambda: "I see it." in driver.texts(driver.dm()), 30)
        assert "inbox/report.txt" in str(model.calls[0].messages[-1]["content"])
        (saved,) = (home / "b" / "workspace").rglob("report.txt")
        assert saved.read_bytes() == b"figures"
        assert not (home / "a" / "workspace").exists() or not list((home / "a" / "workspace").rglob("report.txt"))
        await settled(worker.database)
    assert driver.server.violations == []
    assert "Unclosed" not in caplog.text


async def test_a_file_goes_out(home: Path, driver: Driver) -> None:
    write = calls(call("files", {"action": "write", "path": "plan.txt", "content": "step one"}))
    script = (write, calls(call("files", {"action": "send", "path": "plan.txt"})), "Here it is.")
    async with answering(home, driver, *script) as s:
        s.says("send me the plan")
        await s.until(lambda: any(said.file for said in driver.said_by_bot(driver.dm())))
        (file,) = [said.file for said in driver.said_by_bot(driver.dm()) if said.file]
        assert (file.name, file.data) == ("plan.txt", b"step one")
        await s.until(lambda: "Here it is." in driver.texts(driver.dm()))
        await settled(s.app.database)


async def test_a_file_that_goes_out_with_words_is_the_file(home: Path, driver: Driver) -> None:
    write = calls(call("files", {"action": "write", "path": "plan.txt", "content": "step one"}))
    send = calls(call("files", {"action": "send", "path": "plan.txt", "content": "the plan"}))
    async with answering(home, driver, write, send, "Here it is.") as s:
        s.says("send me the plan")
        await s.until(lambda: "Here it is." in driver.texts(driver.dm()))
        (said,) = [said for said in driver.said_by_bot(driver.dm()) if said.file]
        assert (said.text, said.file.data) == ("the plan", b"step one")


@pytest.mark.parametrize("answer", ["It is noon.", "It is noon. " * 300])
async def test_the_answer_to_a_voice_message_is_one_too(home: Path, driver: Driver, answer: str) -> None:
    async with answering(home, driver, "what time is it", answer, speaks=True) as s:
        assert s.model is not None
        s.says("", file=SentFile("voice.ogg", b"OggS", "audio/ogg", voice=True))
        await s.until(lambda: "".join(driver.texts(driver.dm())).count("noon") == answer.count("noon"))
        await settled(s.app.database)
        first, *others = driver.said_by_bot(driver.dm())
        assert first.file
        assert first.file.data == OPUS
        assert first.file.voice == (driver.name == "whatsapp")  # the others know it by its kind
        assert [said.file for said in others] == [None] * len(others)
        assert len(s.model.spoken) == 1


async def test_a_long_answer_is_split_and_arrives_whole(home: Path, driver: Driver) -> None:
    async with answering(home, driver, Reply(text=LONG)) as s:
        s.says("write a long answer")
        await s.until(lambda: "two 7" in "".join(driver.texts(driver.dm())) or _as_file(driver))
        await settled(s.app.database)
        whole = "".join(driver.texts(driver.dm()))
        file = _as_file(driver)
        assert file or all(f"two {n}" in whole for n in range(8))
        if file:
            assert file == LONG.encode()


def _as_file(driver: Driver) -> bytes | None:
    files = [said.file for said in driver.said_by_bot(driver.dm()) if said.file]
    return files[-1].data if files else None


async def test_a_growing_answer_is_shown(home: Path, driver: Driver) -> None:
    if not driver.has_previews:
        pytest.skip("the platform shows none")
    gate = Gate()
    async with answering(home, driver, Reply(chunks=("First words. ", "Last words."), between=gate)) as s:
        s.says("tell me")
        await s.until(lambda: driver.shown_so_far(driver.dm()))
        gate.open.set()
        await s.until(lambda: driver.texts(driver.dm()) == ["First words. Last words."])
        await settled(s.app.database)
        assert driver.texts(driver.dm()) == ["First words. Last words."]


async def test_a_stranger_is_refused_once_and_let_in_by_code(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        chat = driver.dm(driver.stranger)
        driver.says(chat, "hello", person=driver.stranger)
        (answer,) = await s.answers(chat, 1)
        assert "hermes pair approve" in answer
        driver.says(chat, "hello again", person=driver.stranger)
        await s.answer_to("hello")
        assert len(driver.said_by_bot(chat)) == 1
        assert "hello again" not in await s.app.database.read(_said_by_users)
        code = answer.split("hermes pair approve ")[1].split()[0].strip("`")
        await s.app.database.write(people.approve, code, now_ms())
        assert "practice model" in await s.answer_to("now?", chat, person=driver.stranger)


async def test_an_edit_after_the_answer_is_told_and_a_deleted_message_is_not_answered(
    home: Path, driver: Driver
) -> None:
    gate = asyncio.Event()

    async def hold() -> None:
        await gate.wait()

    async with answering(home, driver, Reply(text="One.", before=hold), "Two.", "Three.") as s:
        dm = driver.dm()
        first = s.says("hello")
        await s.until(lambda: s.model and s.model.calls)
        gone = s.says("forget this")
        await s.until(lambda: _unread(s) == 1)
        driver.deletes(dm, gone)
        await s.until(lambda: _unread(s) == 0)
        gate.set()
        await s.answers(dm, 1)
        assert await s.app.database.read(_said_by_users) == ["hello"]
        driver.edits(dm, first, "hello there")
        assert "already answered" in (await s.answers(dm, 2))[-1]


def _unread(s) -> int:
    query = text("SELECT count(*) FROM inbox WHERE outcome IS NULL")
    return s.app.database.read_now(lambda conn: conn.execute(query).scalar_one())


async def test_other_bots_and_our_own_words_are_ignored(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        driver.bot_says(driver.dm(), "hello")
        await s.answer_to("hello")
        assert await s.app.database.read(_said_by_users) == ["hello"]


async def test_a_question_is_answered_by_a_button_or_in_words(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        dm = driver.dm()
        assert "colour" in await s.answer_to("ask me something")
        card = next(said for said in driver.said_by_bot(dm) if said.buttons)
        driver.taps(dm, card, "Red")
        assert "Red" in (await s.answers(dm, 2))[-1]
        if driver.edits_cards:
            await s.until(lambda: "Answered by Ann" in card.text)
            assert card.buttons == []
        await s.answer_to("ask me something")
        assert "violet" in await s.answer_to("violet")


async def test_a_question_in_a_group_is_answered_by_reply_or_mention(home: Path, driver: Driver) -> None:
    async with scene(home, driver) as s:
        group = driver.group()
        root = driver.says(group, driver.mention("ask me something"))
        await s.answers(group, 1)
        card = next(said for said in driver.said_by_bot(group) if said.buttons)
        driver.replies_to(group, card, root, "violet")
        assert "violet" in (await s.answers(group, 2))[-1]


async def test_a_message_during_a_run_gets_a_reaction_and_is_taken_into_account(home: Path, driver: Driver) -> None:
    gate = asyncio.Event()

    async def hold() -> None:
        await gate.wait()

    async with answering(home, driver, Reply(text="One.", before=hold), "Both.") as s:
        s.says("hello")
        await s.until(lambda: s.model and s.model.calls)
        second = s.says("and also this")
        await s.until(lambda: second.reaction)
        gate.set()
        await s.until(lambda: "Both." in driver.texts(driver.dm()))
        await s.until(lambda: second.reaction is None)
        assert "and also this" in await s.app.database.read(_said_by_users)
