"""Large files in calls: they are cut out of the body before it is parsed, and nobody notices."""

import asyncio
import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from gateway.api.http.parsing import MOST_PARSED
from tests.integration.api.serving import Gateway, gateway
from tests.integration.api.test_files import SESSIONS, as_data, asked, call, inbox, message_with, send

DATA = b"\x89PNG\r\n\x1a\n" + random.Random(2).randbytes(300_000)
PICTURE = f"data:image/png;base64,{base64.b64encode(DATA).decode()}"
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


@SESSIONS
async def test_large_pictures_and_files_reach_the_model_as_they_stand(home: Path, session: str | None) -> None:
    picture = {"type": "image_url", "image_url": {"url": PICTURE}}
    file = {"type": "file", "file": {"filename": "a.bin", "file_data": PICTURE}}
    async with gateway(home) as gw:
        assert (await call(gw, CHAT, {"messages": message_with(picture)}, session))[-1] == picture
        assert (await call(gw, CHAT, {"messages": message_with(file)}, session))[-1] == file
        response = {"input": message_with({"type": "input_image", "image_url": PICTURE}), "store": False}
        assert (await call(gw, RESPONSES, response, session))[-1] == picture
        assert not list(home.glob("tmp*"))


async def test_a_large_file_of_a_thread_lies_in_the_inbox(home: Path) -> None:
    async with gateway(home) as gw:
        assert (await send(gw, as_data("a.png", "image/png", DATA)))[0] == 202
        assert (await asked(gw))[-1]["image_url"]["url"] == PICTURE
        assert inbox(home) == {"a.png": DATA}


async def test_a_kept_response_is_continued_without_the_contents_of_its_files(home: Path) -> None:
    small = f"data:image/png;base64,{base64.b64encode(DATA[:100]).decode()}"
    async with gateway(home) as gw:
        parts = [{"type": "input_image", "image_url": url} for url in (small, PICTURE)]
        for background in (False, True):
            asked = {"input": [{"role": "user", "content": parts}], "background": background}
            _, first, _ = await gw.ask("POST", RESPONSES, asked)
            await _until_done(gw, first["id"])
            again = {"input": "and now?", "previous_response_id": first["id"]}
            assert (await gw.ask("POST", RESPONSES, again))[0] == 200
            assert "detached:" not in json.dumps(gw.model.calls[-1].body)
            before = json.dumps(gw.model.calls[-1].messages)
            assert ("[a file that was sent earlier]" in before) is not background  # on a session the files are kept


async def _until_done(gw: Gateway, which: str) -> None:
    while (await gw.ask("GET", f"{RESPONSES}/{which}"))[1]["status"] != "completed":
        await asyncio.sleep(0.01)


async def test_the_same_large_body_again_is_recognised(home: Path) -> None:
    async with gateway(home) as gw:
        for _ in range(2):
            assert (await send(gw, as_data("a.png", "image/png", DATA), Idempotency_Key="k"))[0] == 202
        other = as_data("a.png", "image/png", DATA[:-1] + b"!")
        assert (await send(gw, other, Idempotency_Key="k"))[0] == 422
        assert len(inbox(home)) == 1


@pytest.mark.parametrize("broken", [PICTURE + "A", PICTURE[:-9] + "*" + PICTURE[-8:]])
async def test_what_is_wrong_with_a_large_file_is_said(home: Path, broken: str) -> None:
    async with gateway(home) as gw:
        body = {"messages": message_with({"type": "image_url", "image_url": {"url": broken}})}
        status, answer, _ = await gw.ask("POST", CHAT, body)
        assert (status, answer["error"]["param"]) == (400, "messages[0].content[0].image_url.url")
        assert "base64" in answer["error"]["message"]


async def test_what_only_looks_like_a_file_stays_as_it_is(home: Path) -> None:
    letters = PICTURE.partition(",")[2]
    function = {"name": "f", "parameters": {"type": "object", "data": letters}}
    async with gateway(home) as gw:
        tools = [{"type": "function", "function": function}]
        body = {"messages": [{"role": "user", "content": "hello"}], "tools": tools}
        assert (await gw.ask("POST", CHAT, body))[0] == 200
        sent = gw.model.calls[-1]
        assert letters in json.dumps(sent.body)
        assert "detached:" not in json.dumps(sent.body)


async def test_a_body_that_is_larger_besides_its_files_is_refused(home: Path) -> None:
    async def status(gw: Gateway, body: Any) -> int:
        return (await gw.ask("POST", CHAT, body))[0]

    async with gateway(home) as gw:
        part = {"type": "text", "text": "x" * (MOST_PARSED // 2 + 1)}
        assert await status(gw, {"messages": [{"role": "user", "content": [part, part]}]}) == 413
        escaped = {"metadata": {"data": "A" * MOST_PARSED}, "messages": message_with({"type": "text", "text": "x"})}
        assert await status(gw, escaped) == 413
