"""Endpoints that send too much, packed, or from somewhere else: refused before anything looks at it."""

import gzip
import json
import time

import pytest

from gateway.agent.models.answer_limits import LEAST_BYTES
from gateway.agent.models.interface import ModelError, ModelRefused, ModelUnreachable
from tests.fakes.model_replies import Failure
from tests.fakes.model_server import ModelServer
from tests.unit.gateway.agent.model_in_process import model_in_process

EVENTS = "text/event-stream"
WHOLE = {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
ENDLESS = {
    "a line without end": Failure(status=200, body=b"data: " + b"x" * (LEAST_BYTES + 100_000), content_type=EVENTS),
    "an event without end": Failure(status=200, body=b"data: x\n" * (LEAST_BYTES // 8 + 20_000), content_type=EVENTS),
    "a whole answer": Failure(status=200, body=json.dumps({**WHOLE, "x": "y" * LEAST_BYTES}).encode()),
}


@pytest.mark.parametrize("answer", ENDLESS.values(), ids=ENDLESS.keys())
async def test_an_answer_that_is_too_large_is_not_read(answer: Failure):
    async with model_in_process(then=answer) as talk:
        with pytest.raises(ModelUnreachable, match="sent more than"):
            await talk.ask()


async def test_a_long_stream_of_events_is_no_large_one():
    event = json.dumps({"choices": [{"delta": {"content": "a"}}], "padding": "x" * 200_000})
    end = json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    body = "".join(f"data: {each}\r\n\r\n" for each in [*[event] * 30, end, "[DONE]"]).encode()
    assert len(body) > LEAST_BYTES
    async with model_in_process([Failure(status=200, body=body, content_type=EVENTS)]) as talk:
        assert (await talk.ask()).text == "a" * 30


@pytest.mark.parametrize("status", [400, 500])
async def test_of_a_huge_error_only_its_beginning_is_looked_at(status: int):
    said = b'{"error": {"message": "no such model: ' + b"model " * 3_000_000 + b'"}}'
    async with model_in_process(then=Failure(status=status, body=said)) as talk:
        began = time.process_time()
        with pytest.raises(ModelError, match="no such model") as raised:
            await talk.ask()
        assert len(str(raised.value)) < 1_000
        assert (time.process_time() - began) / talk.server.count < 0.5


async def test_a_packed_answer_is_not_unpacked():
    body = gzip.compress(json.dumps({**WHOLE, "x": "y" * 50_000_000}).encode())
    packed = Failure(status=200, body=body, headers={"Content-Encoding": "gzip"})
    async with model_in_process(then=packed) as talk:
        with pytest.raises(ModelUnreachable, match="packs its answers"):
            await talk.ask()
        assert talk.server.calls[0].headers["Accept-Encoding"] == "identity"


async def test_a_redirect_takes_the_conversation_nowhere():
    async with ModelServer() as other:
        away = Failure(status=307, headers={"Location": f"{other.url}/chat/completions"})
        async with model_in_process(then=away) as talk:
            with pytest.raises(ModelRefused, match=r"redirects to another address \(307\)"):
                await talk.ask()
        assert other.count == 0
