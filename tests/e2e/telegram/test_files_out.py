"""Files that the agent sends: into the right place, before the words that follow, and no false belief when one does not arrive."""

import time
from pathlib import Path

import pytest

from gateway.attachments import outgoing_files
from gateway.texts import say
from sessions import outbox
from tests.e2e.telegram.daemon import answering, scene, settled, until_dead
from tests.fakes.model_replies import Reply, call, calls

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 100


def sends(path: str, words: str | None = None) -> Reply:
    return calls(call("files", {"action": "send", "path": path, "content": words}))


def lay(home: Path, name: str, data: bytes) -> None:
    """Into the workspace that the owner has everywhere."""
    folder = home / "workspace" / "agent:main"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


async def test_a_file_of_the_workspace_arrives_before_the_answer(home: Path) -> None:
    lay(home, "report.csv", b"apples,3\n")
    async with answering(home, sends("report.csv", "the **figures**"), "There it is.") as (s, model):
        s.says("send me the report")
        assert await s.server.answered(s.dm.id, 2) == ["the figures", "There it is."]
        (sent,) = s.server.called("sendDocument")
        assert (sent["document"].filename, bytes(sent["document"])) == ("report.csv", b"apples,3\n")
        assert "on its way" in model.calls[-1].messages[-1]["content"]
        assert [m.reply_to for m in s.server.chat(s.dm.id) if m.from_bot] == [None, None]


async def test_a_picture_is_a_picture_and_one_that_telegram_does_not_take_a_file(home: Path) -> None:
    lay(home, "cat.png", PNG)
    async with answering(home, sends("cat.png"), "A cat.", sends("cat.png"), "Again.") as (s, _):
        assert await s.answer_to("show me") is not None
        await s.server.until(lambda: "A cat." in s.server.answers(s.dm.id))
        assert len(s.server.called("sendPhoto")) == 1
        s.server.fail("sendPhoto", status=400, description="Bad Request: PHOTO_INVALID_DIMENSIONS")
        s.says("and again")
        await s.server.until(lambda: "Again." in s.server.answers(s.dm.id))
        (sent,) = s.server.called("sendDocument")
        assert sent["document"].filename == "cat.png"


async def test_in_a_topic_it_goes_there(home: Path) -> None:
    async with scene(home) as s:
        group = s.server.group(topics=[5])
        s.server.user_says(group, s.ann, "@hermes_bot write a file notes.md: milk", topic=5)
        await s.server.answered(group.id)
        s.server.user_says(group, s.ann, "@hermes_bot send me the file notes.md", topic=5)
        await s.server.until(lambda: s.server.called("sendDocument"))
        (sent,) = s.server.called("sendDocument")
        assert (sent["message_thread_id"], bytes(sent["document"])) == (5, b"milk")


@pytest.mark.parametrize("path", ["nowhere.txt", "../../config.yaml", ".", "empty.txt"])
async def test_what_cannot_be_sent_is_told_to_the_model(home: Path, path: str) -> None:
    lay(home, "empty.txt", b"")
    async with answering(home, sends(path), "Sorry.") as (s, model):
        assert await s.answer_to("send it") == "Sorry."
        assert model.calls[-1].messages[-1]["content"].startswith("[files failed: ")
        assert s.server.called("sendDocument") == []


async def test_one_that_telegram_refuses_is_said_in_the_chat(home: Path) -> None:
    lay(home, "report.csv", b"apples,3\n")
    async with answering(home, sends("report.csv"), "There it is.") as (s, _):
        s.server.fail("sendDocument", status=413, description="Request Entity Too Large")
        s.says("send me the report")
        await s.server.until(lambda: say("limits.file_not_sent") in s.server.answers(s.dm.id))
        (why,) = await until_dead(s, 1)
        assert "larger" in why


async def test_what_is_sent_is_the_file_as_it_was_then(home: Path) -> None:
    lay(home, "report.csv", b"first")
    again = calls(
        call("files", {"action": "send", "path": "report.csv"}, id="a"),
        call("files", {"action": "write", "path": "report.csv", "content": "second"}, id="b"),
        call("files", {"action": "send", "path": "report.csv"}, id="c"),
        call("files", {"action": "delete", "path": "report.csv"}, id="d"),
    )
    async with answering(home, again, "Both.") as (s, _):
        s.server.rate_limit("sendDocument", retry_after=1)
        s.says("send me both")
        await s.server.until(lambda: "Both." in s.server.answers(s.dm.id))
        sent = [bytes(call["document"]) for call in s.server.called("sendDocument")]
        assert sent[-2:] == [b"first", b"second"]


async def test_copies_are_kept_as_long_as_a_message_waits_for_them(home: Path) -> None:
    lay(home, "report.csv", b"apples,3\n")
    marked = "`a` " * 200  # more marks than one message takes, so the file is a message behind these words
    async with answering(home, sends("report.csv", marked), "There it is.", sends("report.csv"), "Again.") as (s, _):
        s.server.fail("sendDocument", status=413, description="Request Entity Too Large")
        s.says("send me the report")
        await until_dead(s, 1)
        s.says("again")
        await s.server.until(lambda: "Again." in s.server.answers(s.dm.id))
        await settled(s.app.database)
        unsent = await s.app.database.read(outbox.unsent_files)
        assert len(list((home / "outgoing").iterdir())) == 2
        outgoing_files.prune(home / "outgoing", unsent, before=0)
        assert len(list((home / "outgoing").iterdir())) == 2
        outgoing_files.prune(home / "outgoing", unsent, before=time.time() + 9)
        assert len(list((home / "outgoing").iterdir())) == len(unsent) == 1
