"""Answers as they grow and as they arrive, with a scripted model behind the real client."""

import asyncio
from pathlib import Path
from typing import Any

from tests.e2e.telegram.daemon import Gate, answering, daemon
from tests.fakes.model_replies import Reply
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer

JPEG = b"\xff\xd8\xff" + b"0" * 50


async def test_a_direct_message_shows_a_native_draft_that_the_answer_takes_the_place_of(home: Path) -> None:
    gate = Gate()
    async with answering(home, Reply(chunks=("First words ", "and the end."), between=gate)) as (s, _):
        s.says("hello")
        await s.server.until(lambda: any("First" in str(p.get("text")) for p in s.server.called("sendMessageDraft")))
        assert s.server.answers(s.dm.id) == []
        gate.open.set()
        assert await s.server.answered(s.dm.id) == ["First words and the end."]


async def test_a_group_sees_one_message_that_grows_into_the_answer(home: Path) -> None:
    gate = Gate()
    async with answering(home, Reply(chunks=("First words of it ", "and the end."), between=gate)) as (s, _):
        group = s.server.group()
        asked = s.server.user_says(group, s.ann, "@hermes_bot hello")
        await s.server.answered(group.id)
        gate.open.set()
        await s.server.until(lambda: s.server.answers(group.id) == ["First words of it and the end."])
        (answer,) = [m for m in s.server.chat(group.id) if m.from_bot]
        assert answer.reply_to == asked.id


async def test_alone_with_somebody_an_answer_quotes_only_when_something_came_in_between(home: Path) -> None:
    gate = Gate()
    async with answering(home, "At once.", Reply(chunks=("It took ", "a while."), between=gate)) as (s, _):
        await s.answer_to("hello")
        asked = s.says("think")
        await s.server.until(lambda: any("took" in str(p.get("text")) for p in s.server.called("sendMessageDraft")))
        s.says("/status")
        await s.server.answered(s.dm.id, 2)
        gate.open.set()
        await s.server.until(lambda: "It took a while." in s.server.answers(s.dm.id))
        quoted = {m.text: m.reply_to for m in s.server.chat(s.dm.id) if m.from_bot}
        assert quoted["At once."] is None
        assert quoted["It took a while."] == asked.id


async def test_what_is_ready_at_the_end_is_sent_before_it(home: Path) -> None:
    gate = Gate()
    async with (
        TelegramServer() as server,
        ModelServer([Reply(chunks=("First words ", "and the end."), between=gate)]) as model,
    ):
        chosen = {"base_url": model.url, "name": "big", "api_key": "k"}
        group, ann = server.group(), server.user(7, "Ann")
        async with daemon(home, server, sections={"model": chosen}):
            server.user_says(group, ann, "@hermes_bot hello")
            await server.answered(group.id)
            asyncio.get_running_loop().call_later(0.2, gate.open.set)
        assert server.answers(group.id) == ["First words and the end."]


async def test_silence_never_flashes(home: Path) -> None:
    gate = Gate()
    async with answering(home, Reply(chunks=("NO_", "REPLY"), between=gate), "now I speak") as (s, model):
        group = s.server.group()
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        await s.server.until(lambda: model.count)
        gate.open.set()
        s.server.user_says(group, s.ann, "@hermes_bot hello again")
        await s.server.until(lambda: s.server.answers(group.id) == ["now I speak"])
        assert not any("NO_" in str(params) for _, params in s.server.calls)


async def test_a_very_long_answer_is_its_beginning_and_a_file(home: Path) -> None:
    long = "\n\n".join(f"Paragraph {number}. " + "many words " * 60 for number in range(60))
    async with answering(home, long) as (s, _):
        s.says("write a book")
        await s.server.until(lambda: s.server.called("sendDocument"))
        (file,) = s.server.called("sendDocument")
        assert file["document"].filename == "answer.md"
        assert file["document"].decode().strip() == long.strip()
        assert s.server.answers(s.dm.id)[0].startswith("Paragraph 0.")


async def test_formatting_becomes_entities_and_pieces_stay_whole(home: Path) -> None:
    text = "**bold** and `code`\n\n```python\n" + "\n".join(f"line({n})  # {'x' * 60}" for n in range(90)) + "\n```"
    async with answering(home, text) as (s, _):
        s.says("show me")
        pieces = await s.server.answered(s.dm.id, 2)
        assert "".join(pieces).count("line(") == 90
        assert all(len(piece.encode("utf-16-le")) // 2 <= 4096 for piece in pieces)
        sent = s.server.called("sendMessage")
        assert [p.get("disable_notification", False) for p in sent] == [False, True]


async def test_a_voice_message_is_understood(home: Path) -> None:
    async with answering(home, "what somebody said", "I heard you", voice=True) as (s, model):
        assert await s.answer_to("", voice=b"OggS") == "I heard you"
        assert model.uploads
        assert model.calls[-1].messages[-1]["content"].endswith("what somebody said")


async def test_a_picture_is_shown_to_the_model(home: Path) -> None:
    async with answering(home, "a cat") as (s, model):
        assert await s.answer_to("what is this", photo=b"\xff\xd8\xff" + b"0" * 50) == "a cat"
        parts = model.calls[-1].messages[-1]["content"]
        assert [part["type"] for part in parts] == ["text", "image_url"]


async def test_an_unreachable_model_is_said_and_retry_answers(home: Path) -> None:
    async with answering(home) as (s, model):
        from tests.fakes.model_replies import Failure

        model.script = [Failure(status=401, message="bad key")]
        assert "refuses the request" in await s.answer_to("hello")
        model.script = ["here I am"]
        assert await s.answer_to("/retry") == "here I am"


async def test_quotes_are_told_to_the_model(home: Path) -> None:
    async with answering(home, "first", "second") as (s, model):
        await s.answer_to("hello")
        answer = next(m for m in s.server.chat(s.dm.id) if m.from_bot)
        await s.answer_to("why", reply_to=answer)
        assert "(in reply to you: “first”)\nwhy" in model.calls[-1].messages[-1]["content"]


async def test_the_pictures_of_an_album_are_looked_at_together(home: Path) -> None:
    async with answering(home, "ten cats", "one dog") as (s, model):
        for number in range(10):
            s.says("what are these" if not number else "", photo=JPEG + bytes([number]), media_group_id="77")
        assert await s.server.answered(s.dm.id) == ["ten cats"]
        assert pictures(model.calls[-1].messages) == 10
        group = s.server.group()
        for number in range(2):
            s.server.user_says(group, s.ann, "" if number else "@hermes_bot and these", photo=JPEG, media_group_id="78")
        assert await s.server.answered(group.id) == ["one dog"]
        assert pictures(model.calls[-1].messages) == 2
        assert model.count == 2


async def test_a_text_that_was_too_long_for_one_message_is_answered_as_a_whole(home: Path) -> None:
    async with answering(home, "all of it") as (s, model):
        for part in ("a" * 4_096, "b" * 4_096, "and the end"):
            s.says(part)
        assert await s.server.answered(s.dm.id) == ["all of it"]
        assert model.count == 1
        assert model.calls[-1].messages[-1]["content"].endswith("and the end")


def pictures(messages: list[dict[str, Any]]) -> int:
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    return sum(part["type"] == "image_url" for part in parts)
