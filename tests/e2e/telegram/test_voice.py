"""Answers to voice messages are voice messages too; and whatever the endpoint that speaks does, their text arrives."""

import time
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.models import speech as speech_module
from gateway.attachments import outgoing_files
from gateway.chats.voice import said_aloud
from sessions import outbox
from tests.e2e.telegram.daemon import Gate, answering, process, settled, until_dead
from tests.fakes.model_replies import Failure, Reply, call, calls
from tests.fakes.model_server import OPUS, ModelServer
from tests.fakes.telegram_server import TelegramServer

LONG = (
    "# The plan\n\nFirst *this*, see https://www.example.org/a/b?c=d.\n\n```py\nprint(1)\n```\n\n" + "Then that. " * 500
)


async def test_the_answer_to_a_voice_message_is_one_too_with_its_text_below(home: Path) -> None:
    async with answering(home, "what time is it", "It is **noon**.", "Still noon.", speaks=True) as (s, model):
        assert await s.answer_to("", voice=b"OggS") == "It is noon."
        (sent,) = s.server.called("sendVoice")
        assert (bytes(sent["voice"]), sent["caption"]) == (OPUS, "It is noon.")
        assert s.server.called("sendMessage") == []
        assert model.spoken == [{"model": "tts", "voice": "nova", "input": "It is noon.", "response_format": "opus"}]
        assert await s.answer_to("and now?") == "Still noon."  # an answer to text stays text
        assert len(model.spoken) == 1
        assert len(s.server.called("sendVoice")) == 1


async def test_in_a_group_the_preview_gives_way_to_the_voice(home: Path) -> None:
    gate = Gate()
    grows = Reply(chunks=("It is ", "noon."), between=gate)
    async with answering(home, "hello", "what time is it", grows, speaks=True) as (s, _):
        group = s.server.group()
        s.server.user_says(group, s.ann, "@hermes_bot are you there?")
        await s.server.answered(group.id)
        await settled(s.app.database)
        hello = next(message for message in s.server.chat(group.id) if message.from_bot)
        s.server.user_says(group, s.ann, "", voice=b"OggS", reply_to=hello)
        await s.server.until(lambda: len(s.server.answers(group.id)) == 2)  # the preview
        gate.open.set()
        await s.server.until(lambda: s.server.called("sendVoice"))
        await settled(s.app.database)
        await s.server.until(lambda: s.server.answers(group.id) == ["hello", "It is noon."])
        assert [message.file for message in s.server.chat(group.id) if message.from_bot] == [None, OPUS]


async def test_a_long_answer_is_said_in_plain_words_and_in_part(home: Path) -> None:
    async with answering(home, "the plan", LONG, speaks=True) as (s, model):
        s.says("", voice=b"OggS")
        await s.server.until(lambda: s.server.answers(s.dm.id)[-1:] and "Then that." in s.server.answers(s.dm.id)[-1])
        await settled(s.app.database)
        first, *texts = [message for message in s.server.chat(s.dm.id) if message.from_bot]
    assert (first.file, first.text) == (OPUS, "")
    assert "".join(message.text for message in texts).count("Then that.") == 500
    words = model.spoken[0]["input"]
    assert words.startswith("The plan.\nFirst this, see example.org.\nThere is code in the text.\nThen that. Then")
    assert words.endswith("Then that.\nThe rest is in the text.")
    assert len(words) < 4_000


@pytest.mark.parametrize("speech", [Failure(), Failure(hang=True), Failure(drop=True), b"<html>no</html>", b""])
async def test_without_speech_the_text_arrives_alone(home: Path, speech: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_module, "SPEAK_SECONDS", 0.5)
    script = ["what time is it", "It is noon.", "and now", "It is one."]
    async with answering(home, *script, speaks=True) as (s, model):
        model.speech = speech
        assert await s.answer_to("", voice=b"OggS") == "It is noon."
        await settled(s.app.database)
        assert len(model.spoken) == 1
        assert await s.answer_to("", voice=b"OggS") == "It is one."
        # One that hangs is left alone for a while, so that the chat does not wait for it each time.
        assert len(model.spoken) == (1 if speech == Failure(hang=True) else 2)
        assert s.server.called("sendVoice") == []


@pytest.mark.parametrize("answer", ["It is noon.", LONG])
async def test_where_telegram_refuses_the_voice_the_text_arrives(home: Path, answer: str) -> None:
    async with answering(home, "what time is it", answer, speaks=True) as (s, _):
        s.server.fail("sendVoice", status=400, description="Bad Request: VOICE_MESSAGES_FORBIDDEN")
        s.server.fail("sendDocument", status=413, description="Request Entity Too Large")
        s.says("", voice=b"OggS")
        await s.server.until(lambda: s.server.answers(s.dm.id))
        await settled(s.app.database)
        assert "".join(s.server.answers(s.dm.id)).endswith(answer[-11:].strip())
        assert [message.file for message in s.server.chat(s.dm.id) if message.from_bot and message.file] == []


async def test_a_question_is_not_spoken_and_the_answer_after_it_is(home: Path) -> None:
    asks = calls(call("ask_human", {"question": "Which one?", "options": ["red", "blue"]}))
    async with answering(home, "paint it", asks, "Red it is.", speaks=True) as (s, model):
        assert "Which one?" in await s.answer_to("", voice=b"OggS")
        assert model.spoken == []
        assert await s.answer_to("red") == "Red it is."
        assert [each["input"] for each in model.spoken] == ["Red it is."]


async def test_what_was_said_aloud_before_a_crash_is_not_paid_again(home: Path) -> None:
    async with answering(home, speaks=True) as (s, model):
        first = await said_aloud(s.app, "run:1:0", "It is noon.")
        assert first == await said_aloud(s.app, "run:1:0", "It is noon.")
        assert len(model.spoken) == 1
        assert first
        assert (Path(first.path).read_bytes(), Path(first.path).stat().st_mode & 0o777) == (OPUS, 0o600)


async def test_a_recording_is_kept_as_long_as_its_message_may_be_sent_again(home: Path) -> None:
    async with answering(home, "what time is it", "It is noon.", speaks=True) as (s, _):
        for method in ("sendVoice", "sendMessage"):
            s.server.fail(method, status=413, description="Request Entity Too Large")
        s.says("", voice=b"OggS")
        await until_dead(s, 1)
        outgoing_files.prune(home / "outgoing", await s.app.database.read(outbox.unsent_files), time.time() + 9)
        assert [file.read_bytes() for file in home.glob("outgoing/*/answer.ogg")] == [OPUS]
        (letter,) = await s.app.database.read(outbox.dead_letters)
        await s.app.database.write(outbox.send_again, letter.id, s.app.clock())
        await s.server.until(lambda: "It is noon." in s.server.answers(s.dm.id))
        await settled(s.app.database)
        outgoing_files.prune(home / "outgoing", await s.app.database.read(outbox.unsent_files), time.time() + 9)
        assert list(home.glob("outgoing/*")) == []


async def test_a_kill_between_speaking_and_sending_pays_once_and_sends_once(home: Path) -> None:
    async with TelegramServer() as server, ModelServer(["what time is it", "It is noon."]) as model:
        voice = {"base_url": model.url, "speak": True, "speak_model": "tts"}
        sections = {"model": {"base_url": model.url, "name": "big", "api_key": "k"}, "voice": voice}
        ann = server.user(7, "Ann")
        dm = server.dm(ann)
        server.rate_limit("sendVoice", retry_after=2)
        daemon = await process(home, server, sections=sections)
        server.user_says(dm, ann, "", voice=b"OggS")
        await server.until(lambda: server.called("sendVoice"), timeout=60)
        daemon.kill()
        await daemon.wait()
        daemon = await process(home, server, sections=sections)
        assert await server.answered(dm.id, timeout=60) == ["It is noon."]
        daemon.terminate()
        await daemon.wait()
    assert [message.file for message in server.chat(dm.id) if message.from_bot] == [OPUS]
    assert len(model.spoken) == 1
    assert server.violations == []
