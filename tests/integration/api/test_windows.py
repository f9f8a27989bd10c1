"""What a call sends reaches the model whole, or is refused with figures: texts, pictures and files, with a session and without."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.model_replies import call as tool_call
from tests.fakes.model_replies import calls
from tests.fakes.model_rules import Speaks
from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import Gateway, gateway

SESSIONS = pytest.mark.parametrize("session", [None, "s"], ids=["stateless", "session"])
PASTED = "".join(f"line {number} of what was pasted\n" for number in range(7_000))  # 210 kB
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
PNG = b"\x89PNG\r\n\x1a\n"


async def ask(gw: Gateway, session: str | None, messages: list[dict[str, Any]], **more: Any) -> tuple[int, Any]:
    headers = {"X_Hermes_Session_Id": session} if session else {}
    status, answer, _ = await gw.ask("POST", "/v1/chat/completions", {"messages": messages, **more}, **headers)
    return status, answer


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def words(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def picture(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}


def pdf() -> dict[str, Any]:
    data = base64.b64encode(b"%PDF-1.7").decode()
    return {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}}


@SESSIONS
async def test_long_words_reach_the_model_whole(home: Path, session: str | None) -> None:
    rules = "rule by rule, all of them " * 3_000
    async with gateway(home, [calls(tool_call("clock", id="c1"))]) as gw:
        messages = [{"role": "system", "content": rules}, user(PASTED)]
        status, answer = await ask(gw, session, messages, tools=[CLOCK])
        assert status == 200
        assert rules in gw.model.calls[0].messages[0]["content"]
        assert words(gw.model.calls[0].messages[-1]).endswith(PASTED)

        made = answer["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": "c1", "content": PASTED[:100_000]}
        earlier = [] if session else [*messages, made]
        assert (await ask(gw, session, [*earlier, result], tools=[CLOCK]))[0] == 200
        assert gw.model.calls[1].messages[-1]["content"] == PASTED[:100_000]


@SESSIONS
@pytest.mark.parametrize("stream", [False, True])
async def test_what_does_not_fit_is_refused_with_figures(home: Path, session: str | None, stream: bool) -> None:
    async with gateway(home, settings={"context_window": 8_192}) as gw:
        status, answer = await ask(gw, session, [user(PASTED[:60_000])], stream=stream)
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        assert "maximum context length is 8192 tokens" in answer["error"]["message"]
        assert "needs about 15" in answer["error"]["message"]
        assert gw.model.count == 0
        assert (await ask(gw, session, [user("hello")]))[0] == 200


@SESSIONS
async def test_what_fits_beside_no_history_is_sent_without_it(home: Path, session: str | None) -> None:
    async with gateway(home, settings={"context_window": 8_192}) as gw:
        for text in ("first " * 1_000, PASTED[:26_000]):
            assert (await ask(gw, session, [user(text)]))[0] == 200
        assert words(gw.model.calls[-1].messages[-1]).endswith(PASTED[:26_000])


@SESSIONS
@pytest.mark.parametrize("named", [True, False])
async def test_a_refusal_of_the_endpoint_is_told_with_the_code(home: Path, session: str | None, named: bool) -> None:
    async with ModelServer(speaks=Speaks(window=4_000, names_window=named)) as model, gateway(home, model=model) as gw:
        status, answer = await ask(gw, session, [user(PASTED)])
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


@SESSIONS
async def test_pictures_are_neither_too_many_nor_too_large(home: Path, session: str | None) -> None:
    async with gateway(home, sections={"limits": {"attachment_bytes": 20_000_000}}) as gw:
        sent = [picture(PNG + bytes([number])) for number in range(12)] + [picture(PNG + b"x" * 6_000_000)]
        assert (await ask(gw, session, [user([{"type": "text", "text": "look"}, *sent])]))[0] == 200
        assert [part for part in gw.model.calls[0].messages[-1]["content"] if part["type"] == "image_url"] == sent


@SESSIONS
async def test_a_picture_of_another_kind_and_its_detail_stay(home: Path, session: str | None) -> None:
    data = base64.b64encode(b"<svg/>").decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/svg+xml;base64,{data}", "detail": "low"}}
    async with gateway(home) as gw:
        assert (await ask(gw, session, [user([part])]))[0] == 200
        assert gw.model.calls[0].messages[-1]["content"][-1] == part


@SESSIONS
@pytest.mark.parametrize("part", [picture(PNG), pdf()], ids=["picture", "pdf"])
async def test_what_the_endpoint_does_not_take_is_refused_and_the_session_goes_on(
    home: Path, session: str | None, part: dict[str, Any]
) -> None:
    async with ModelServer(speaks=Speaks(pictures=False, files=False)) as model, gateway(home, model=model) as gw:
        for _ in range(2):
            status, answer = await ask(gw, session, [user([{"type": "text", "text": "look"}, part])])
            assert status == 400, answer
            assert answer["error"]["code"] == "refused_by_model"
        status, answer = await ask(gw, session, [user("never mind")])
        assert status == 200
        assert json.dumps(gw.model.calls[-1].messages).count("base64") == 0
