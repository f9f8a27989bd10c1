"""A whole gateway in this process: the store, the worker, and the HTTP side in front of a scripted model."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.retry import RetryPolicy
from gateway.agent.tools.registry import Toolbox
from gateway.api.http.callers import CallerKey, Scope
from gateway.api.http.server import serving
from gateway.api.http.server_state import ApiServices, Intervals
from gateway.attachments.download import AttachmentDownloader
from gateway.attachments.safe_fetch import Fetcher
from gateway.context import App
from gateway.dispatch.fair_queue import FairPlaces
from gateway.dispatch.local import LocalDispatch
from gateway.runs.worker import Worker, working
from sessions.clock import Clock, now_ms
from sessions.db import Database, open_database
from tests.app import give_tools, make_app
from tests.fakes.model_server import ModelServer, Script

if TYPE_CHECKING:
    import openai

OWNER = CallerKey(name="owner", secret="owner-" + "k" * 32, scopes=frozenset(Scope))
CHATTER = CallerKey(name="chatter", secret="chatter-" + "c" * 32, scopes=frozenset({Scope.CHAT}))
READER = CallerKey(name="reader", secret="reader-" + "r" * 32, scopes=frozenset({Scope.READ}))
OTHER = CallerKey(name="other", secret="other-" + "o" * 32, scopes=frozenset({Scope.CHAT, Scope.READ}))
KEYS = (OWNER, CHATTER, READER, OTHER)
CHAT = {"messages": [{"role": "user", "content": "x"}]}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
TOOLS = ("memory", "session_search", "skill", "files", "ask_human", "web_fetch")


@dataclass
class Gateway:
    """`url` of the HTTP side, and everything behind it."""

    url: str
    model: ModelServer
    database: Database
    app: App
    api: ApiServices
    http: aiohttp.ClientSession
    seen: list[Any] = field(default_factory=list)

    def headers(self, key: CallerKey = OWNER, **more: str) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {key.secret}",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }

    async def ask(
        self, method: str, path: str, body: Any = None, key: CallerKey | None = OWNER, **headers: str
    ) -> tuple[int, Any, Any]:
        """Status, JSON and headers."""
        sent = (
            self.headers(key, **headers) if key else {name.replace("_", "-"): value for name, value in headers.items()}
        )
        async with self.http.request(method, self.url + path, json=body, headers=sent) as answer:
            text = await answer.read()
            parsed = await answer.json() if text and answer.content_type == "application/json" else text
            return answer.status, parsed, answer.headers

    async def chat(self, text: str, session: str | None = None, key: CallerKey = OWNER, **fields: Any) -> Any:
        headers = {} if session is None else {"X_Hermes_Session_Id": session}
        body = {"messages": [{"role": "user", "content": text}], **fields}
        status, answer, _ = await self.ask("POST", "/v1/chat/completions", body, key, **headers)
        assert status == 200, answer
        return answer["choices"][0]["message"]["content"]


def client_of(gw: Gateway, **more: Any) -> "openai.AsyncOpenAI":
    import openai  # here: most tests need none, and it takes a second

    return openai.AsyncOpenAI(**{"base_url": f"{gw.url}/v1", "api_key": OWNER.secret, "max_retries": 0, **more})


def one_message(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def is_error_body(answer: Any) -> bool:
    return set(answer) == {"error"} and set(answer["error"]) == {"message", "type", "code", "param"}


async def connected(gw: Gateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = gw.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def raw_answer(gw: Gateway, sent: bytes) -> bytes:
    """All that is answered to these bytes until the other side closes."""
    reader, writer = await connected(gw)
    writer.write(sent)
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def gateway(
    home: Path,
    script: Script = (),
    *,
    works: bool = True,
    database_url: str = "",
    model: ModelServer | None = None,
    settings: Mapping[str, Any] | None = None,
    fetcher: Fetcher | None = None,
    places: FairPlaces | None = None,
    wall: Clock = now_ms,
    **changes: Any,
) -> AsyncIterator[Gateway]:
    """`changes` replace fields of Api. `works` False: nobody drives runs. `wall`: the clock that times are written with."""
    async with contextlib.AsyncExitStack() as stack:
        server = model or await stack.enter_async_context(ModelServer(script))
        fields = {"base_url": server.url, "name": "big", "api_key": "sk-x", "timeout_seconds": 20, **(settings or {})}
        database = await asyncio.to_thread(open_database, home, database_url)
        stack.callback(database.close)
        fetcher = fetcher or Fetcher()
        app = make_app(home, database, clock=wall, name=fields["name"])
        app.places = places or app.places
        app.model = OpenAIModel(
            ModelSettings(**fields),
            retry_policy=RetryPolicy(sleep=lambda _: asyncio.sleep(0)),
            observe=app.metrics.model_called,
        )
        stack.push_async_callback(app.model.aclose)
        app.attachments = AttachmentDownloader({}, limit=lambda: 1_000_000, fetch=fetcher.fetch)
        give_tools(app, Toolbox.of(TOOLS).tools, "You are kind.")
        if works:
            app.dispatch = LocalDispatch(database, places=app.places)
            stack.callback(app.dispatch.close)
            await stack.enter_async_context(working(Worker(app)))
        api = replace(
            ApiServices(
                app=app,
                keys=lambda: KEYS,
                models=lambda: ("big", "small"),
                intervals=Intervals(shutdown=0.2),
                fetcher=fetcher,
            ),
            **changes,
        )
        address = await stack.enter_async_context(serving(api, "127.0.0.1", 0))
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        yield Gateway(url=address.url, model=server, database=database, app=app, api=api, http=http)
