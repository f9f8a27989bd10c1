"""Files that come with messages: as data, and by addresses that are followed without lending anybody our network."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.api.http.server_state import ApiLimits
from gateway.attachments.safe_fetch import Fetcher
from tests.fakes.model_replies import call as tool_call
from tests.fakes.model_replies import calls
from tests.integration.api.serving import Gateway, gateway

PNG = b"\x89PNG\r\n\x1a\n"
PICTURE = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
PDF = f"data:application/pdf;base64,{base64.b64encode(b'%PDF-1.7').decode()}"
FAR = "https://pictures.example/cat.png?sig=1"
MESSAGES = "/v1/deployments/dep_main/messages"


class Site:
    """A file on a web site; `public` is how the fetcher sees the world: this machine plays the public network."""

    def __init__(self, port: int) -> None:
        self.url = f"http://files.example:{port}/report.pdf"
        self.inside = f"http://inside.example:{port}/report.pdf"
        self.literal = f"http://127.0.0.1:{port}/report.pdf"
        self.asked = 0
        self.public = Fetcher(resolve=self._resolve, allowed=lambda ip: ip == ip_address("127.0.0.1"))
        self.as_it_is = Fetcher(resolve=self._resolve)

    async def _resolve(self, host: str) -> list[str]:
        return ["127.0.0.1" if host.startswith("files") else "10.0.0.1"]


@asynccontextmanager
async def site(before: Callable[[], Awaitable[Any]] | None = None) -> AsyncIterator[Site]:
    async def serve(_: web.Request) -> web.Response:
        found.asked += 1
        if before is not None:
            await before()
        return web.Response(body=b"%PDF-1.7", content_type="application/octet-stream")

    app = web.Application()
    app.router.add_get("/report.pdf", serve)
    server = TestServer(app, host="127.0.0.1")
    async with server:
        found = Site(server.port or 0)
        yield found


def inbox(home: Path, namespace: str = "agent:main") -> dict[str, bytes]:
    folder = home / "workspace" / namespace / "inbox"
    return {file.name: file.read_bytes() for file in folder.iterdir()} if folder.is_dir() else {}


async def send(gw: Gateway, *attachments: dict[str, Any], content: str = "see", **headers: str) -> tuple[int, Any]:
    body = {"content": content, "attachments": list(attachments)}
    status, answer, _ = await gw.ask("POST", MESSAGES, body, **headers)
    return status, answer


async def asked(gw: Gateway, count: int = 1) -> Any:
    """The last message that the model was sent, once it was."""
    async with asyncio.timeout(60):
        while gw.model.count < count:
            await asyncio.sleep(0.005)
    return gw.model.calls[-1].messages[-1]["content"]


def by_address(url: str, mime: str = "application/pdf") -> dict[str, Any]:
    return {"name": "report.pdf", "type": mime, "url": url}


def as_data(name: str, mime: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "type": mime, "data": base64.b64encode(data).decode()}


# --- messages to threads ------------------------------------------------------------------------------------------------------


async def test_data_arrives_in_the_inbox_under_a_safe_name(home: Path) -> None:
    async with gateway(home) as gw:
        assert (await send(gw, as_data("../../etc/passwd", "text/plain", b"numbers")))[0] == 202
        assert "[file inbox/passwd, text/plain, 1 kB]" in await asked(gw)
        assert inbox(home) == {"passwd": b"numbers"}


async def test_an_address_is_followed_when_the_message_is_taken_up(home: Path) -> None:
    gate = asyncio.Event()
    async with site(gate.wait) as far, gateway(home, fetcher=far.public) as gw:
        status, _ = await send(gw, by_address(far.url), content="")  # it returns although nothing was fetched yet
        assert status == 202
        gate.set()
        assert "[file inbox/report.pdf, application/pdf, 1 kB]" in await asked(gw)
        assert inbox(home) == {"report.pdf": b"%PDF-1.7"}


async def test_an_address_inside_is_refused_or_told_and_never_asked(home: Path) -> None:
    async with site() as far, gateway(home, fetcher=far.as_it_is) as gw:
        for url in (
            far.literal,
            "http://169.254.169.254/latest/meta-data",
            "http://localhost/",
            "http://[::1]/x",
            "http://2130706433/",
        ):
            status, answer = await send(gw, by_address(url))
            assert (status, answer["error"]["code"]) == (400, "bad_url")
            assert answer["error"]["param"] == "attachments[0].url"
        for count, url in enumerate((far.inside, far.url), 1):
            assert (await send(gw, by_address(url)))[0] == 202
            assert "report.pdf is not there: This address leads into a private network" in await asked(gw, count)
        assert far.asked == 0
        assert inbox(home) == {}


async def test_pictures_by_address_are_left_to_the_model(home: Path) -> None:
    async with site() as far, gateway(home, fetcher=far.as_it_is) as gw:
        await send(gw, by_address(FAR, "image/png"))
        assert (await asked(gw))[-1] == {"type": "image_url", "image_url": {"url": FAR}}


async def test_a_picture_is_what_it_looks_like(home: Path) -> None:
    async with gateway(home) as gw:
        await send(gw, as_data("a.png", "image/png", b"<html>not found"), as_data("b.bin", "application/x", PNG))
        content = await asked(gw)
        assert "[file inbox/a.png, text/html, 1 kB]" in content[0]["text"]
        assert content[1:] == [{"type": "image_url", "image_url": {"url": PICTURE}}]


@pytest.mark.parametrize(
    ("attachment", "param"),
    [
        ({"name": "a", "type": "text/plain", "data": "not base64"}, "attachments[0].data"),
        ({"name": "a", "type": "text/plain", "data": "QQ="}, "attachments[0].data"),
        ({"name": "a", "type": "text/plain", "url": "data:text/plain;base64,Q"}, "attachments[0].url"),
        ({"name": "a", "type": "text/plain", "url": "ftp://files.example/"}, "attachments[0].url"),
        ({"name": "a", "type": "text/plain", "url": "https://x.example/" + "a" * 5_000}, "attachments[0].url"),
        ({"name": "a", "type": "text/plain"}, "attachments[0]"),
        ({"name": "a", "type": "text/plain", "data": "QQ==", "url": "https://x.example/"}, "attachments[0]"),
        ({"name": "a", "type": "text", "data": "QQ=="}, "attachments[0].type"),
    ],
)
async def test_what_is_wrong_with_a_file_is_said(home: Path, attachment: dict[str, Any], param: str) -> None:
    async with gateway(home) as gw:
        status, answer = await send(gw, attachment)
        assert (status, answer["error"]["param"]) == (400, param)
        assert "Value error" not in answer["error"]["message"]


async def test_files_are_limited_in_number_and_size(home: Path) -> None:
    async with gateway(home, limits=ApiLimits(files_per_call=2), sections={"limits": {"attachment_bytes": 100}}) as gw:
        one = as_data("a", "text/plain", b"x")
        assert (await send(gw, one, one))[0] == 202
        assert (await send(gw, one, one, one))[0] == 413
        assert (await send(gw, as_data("a", "text/plain", b"x" * 101)))[0] == 413
        parts = [{"type": "image_url", "image_url": {"url": PICTURE}}] * 3
        body = {"messages": [{"role": "user", "content": parts}]}
        assert (await gw.ask("POST", "/v1/chat/completions", body, X_Hermes_Session_Id="s"))[0] == 413


async def test_files_of_a_message_that_is_not_taken_in_do_not_stay(home: Path) -> None:
    one = as_data("a.txt", "text/plain", b"x")
    async with gateway(home, works=False, sections={"limits": {"queue_per_chat": 1}}) as gw:
        nowhere = {"content": "x", "attachments": [one], "thread_id": "thread_" + "0" * 24}
        assert (await gw.ask("POST", MESSAGES, nowhere))[0] == 404
        assert inbox(home) == {}
        for key, status in (("k", 202), ("k", 202), ("other", 429)):
            assert (await send(gw, one, Idempotency_Key=key))[0] == status
        assert (await send(gw, one, content="other", Idempotency_Key="k"))[0] == 422
        assert inbox(home) == {"a.txt": b"x"}


# --- calls --------------------------------------------------------------------------------------------------------------------

SESSIONS = pytest.mark.parametrize("session", [None, "s"], ids=["stateless", "session"])


async def call(gw: Gateway, path: str, body: dict[str, Any], session: str | None) -> Any:
    headers = {"X_Hermes_Session_Id": session} if session else {}
    status, answer, _ = await gw.ask("POST", path, body, **headers)
    assert status == 200, answer
    return gw.model.calls[-1].messages[-1]["content"]


def message_with(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [part]}]


@SESSIONS
@pytest.mark.parametrize("url", [PICTURE, FAR])
async def test_pictures_of_calls_reach_the_model_as_they_stand(home: Path, session: str | None, url: str) -> None:
    async with gateway(home) as gw:
        chat = {"messages": message_with({"type": "image_url", "image_url": {"url": url}})}
        response = {"input": message_with({"type": "input_image", "image_url": url})}
        for path, body in (("/v1/chat/completions", chat), ("/v1/responses", response)):
            assert (await call(gw, path, body, session))[-1] == {"type": "image_url", "image_url": {"url": url}}


@SESSIONS
@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("way", ["data", "address"])
async def test_files_of_calls(home: Path, session: str | None, dialect: str, way: str) -> None:
    """The model gets them whole; in a session they lie in the workspace as well."""
    async with site() as far, gateway(home, fetcher=far.public) as gw:
        source = {"filename": "report.pdf"} | ({"file_data": PDF} if way == "data" else {"file_url": far.url})
        if dialect == "chat":
            sent = await call(
                gw, "/v1/chat/completions", {"messages": message_with({"type": "file", "file": source})}, session
            )
        else:
            sent = await call(gw, "/v1/responses", {"input": message_with({"type": "input_file", **source})}, session)
        assert sent[-1] == {"type": "file", "file": {"filename": "report.pdf", "file_data": PDF}}
        if session is not None:
            assert "[file inbox/report.pdf, application/pdf, 1 kB]" in sent[0]["text"]
            (files,) = [inbox(home, folder.name) for folder in (home / "workspace").iterdir()]
            assert files == {"report.pdf": b"%PDF-1.7"}


@SESSIONS
async def test_a_call_says_when_a_file_could_not_be_fetched(home: Path, session: str | None) -> None:
    async with site() as far, gateway(home, fetcher=far.as_it_is) as gw:
        body = {"messages": message_with({"type": "file", "file": {"file_url": far.inside}})}
        assert "report.pdf is not there" in json.dumps(await call(gw, "/v1/chat/completions", body, session))
        assert far.asked == 0


async def test_a_file_must_come_from_somewhere(home: Path) -> None:
    async with gateway(home) as gw:
        for file in ({}, {"file_id": "file-1"}, {"file_data": "%%%"}, {"file_url": "file:///etc/passwd"}):
            body = {"messages": message_with({"type": "file", "file": file})}
            assert (await gw.ask("POST", "/v1/chat/completions", body))[0] == 400


async def test_a_call_says_where_a_bad_address_stands(home: Path) -> None:
    bad, text = "http://127.0.0.1/a.pdf", {"type": "text", "text": "see http://127.0.0.1/a.pdf"}
    words = {"type": "input_text", "text": bad}
    refused = [
        ("chat/completions", "messages", [text, {"type": "file", "file": {"file_url": bad}}], ".file.file_url"),
        ("responses", "input", [words, {"type": "input_file", "file_url": bad}], ".file_url"),
        ("chat/completions", "messages", [text, {"type": "image_url", "image_url": {"url": "ftp:"}}], ".image_url.url"),
        ("responses", "input", [words, {"type": "input_image", "image_url": "ftp:"}], ".image_url"),
    ]
    async with gateway(home) as gw:
        for path, field, parts, place in refused:
            body = {field: [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]}
            status, answer, _ = await gw.ask("POST", f"/v1/{path}", body, X_Hermes_Session_Id="s")
            assert (status, answer["error"]["param"]) == (400, f"{field}[1].content[1]{place}")


async def test_no_name_that_the_agent_chooses_breaks_the_inbox(home: Path) -> None:
    write = calls(tool_call("files", {"action": "write", "path": "inbox", "content": "mine"}))
    async with gateway(home, [write, "tried", "seen"]) as gw:
        assert await gw.chat("save it as inbox", "s") == "tried"
        assert "choose another name" in gw.model.calls[1].messages[-1]["content"]
        workspace = gw.app.workspace("agent:main:api:owner:s")
        workspace.mkdir(parents=True, exist_ok=True)
        (workspace / "inbox").write_text("from an older version")
        parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
        assert await gw.chat(parts, "s") == "seen"  # type: ignore[arg-type]
        assert (workspace / "inbox (2)").read_text() == "from an older version"


async def test_links_without_an_end_are_told_without_a_path_of_ours(home: Path) -> None:
    async with gateway(home, [calls(tool_call("files", {"action": "read", "path": "loop"})), "well"]) as gw:
        workspace = gw.app.workspace("agent:main:api:owner:s")
        workspace.mkdir(parents=True)
        (workspace / "loop").symlink_to(workspace / "loop")
        assert await gw.chat("read it", "s") == "well"
        assert str(home) not in str(gw.model.calls[1].messages[-1])


async def test_a_page_of_this_machine_is_not_fetched_and_what_was_read_goes_on(home: Path) -> None:
    async with gateway(home, [calls(tool_call("web_fetch", {"url": "http://localhost:8642/v1/models"})), "no"]) as gw:
        assert await gw.chat("read my models", "s") == "no"
        assert "leads into a private network" in str(gw.model.calls[1].messages[-1]["content"])
        assert "web_search" not in str(gw.model.calls[0].body)
