"""A whole gateway in this process: the store, the worker, and the HTTP side in front of a scripted model."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.retry import RetryPolicy
from gateway.agent.tools.registry import Toolbox
from gateway.api.http.callers import CallerKey, Scope
from gateway.api.http.server import serving
from gateway.api.http.server_state import Intervals, ServerState
from gateway.attachments.download import AttachmentDownloader
from gateway.attachments.safe_fetch import Fetcher
from gateway.chats.intake import Intake
from gateway.chats.supervisor import PlatformSupervisor
from gateway.context import App
from gateway.dashboard.server import Dashboard
from gateway.dispatch import open_dispatch
from gateway.dispatch.fair_queue import FairPlaces
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


class Hooked(PlatformSupervisor):
    """Platforms of which only their webhooks are there."""

    def __init__(self, app: App, webhooks: Mapping[str, Any], handshakes: Mapping[str, Any]) -> None:
        super().__init__(app, Intake(app))
        self.webhook, self.handshake = webhooks.get, handshakes.get


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
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    keys: Sequence[CallerKey] = KEYS,
    webhooks: Mapping[str, Any] | None = None,
    handshakes: Mapping[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[Gateway]:
    """`sections` of the configuration; `changes`: parameters of ServerState; `webhooks`: what takes the deliveries of platforms. `works` False: nobody drives runs. `wall`: the clock that times are written with."""
    async with contextlib.AsyncExitStack() as stack:
        server = model or await stack.enter_async_context(ModelServer(script))
        fields = {"base_url": server.url, "name": "big", "api_key": "sk-x", "timeout_seconds": 20, **(settings or {})}
        database = await asyncio.to_thread(open_database, home, database_url)
        stack.callback(database.close)
        fetcher = fetcher or Fetcher()
        app = make_app(
            home,
            database,
            clock=wall,
            name=fields["name"],
            sections={"model": {"fallbacks": ["small"]}, **(sections or {})},
        )
        app.places = places or app.places
        app.model = OpenAIModel(
            ModelSettings(**fields),
            retry_policy=RetryPolicy(sleep=lambda _: asyncio.sleep(0)),
            observe=app.metrics.model_called,
        )
        stack.push_async_callback(app.model.aclose)
        app.attachments = AttachmentDownloader({}, limit=lambda: 1_000_000, fetch=fetcher.fetch)
        give_tools(app, Toolbox.of(TOOLS).tools, "You are kind.")
        if works or database_url:
            app.dispatch = await open_dispatch(app, serves=works)
            stack.push_async_callback(app.dispatch.close)
            app.live.connect(database.bus)
        if works:
            await stack.enter_async_context(working(Worker(app)))
        app.keys = keys
        app.chats = Hooked(app, webhooks or {}, handshakes or {})
        state = ServerState(app, fetcher=fetcher, **{"intervals": Intervals(shutdown=0.2), **changes})
        address = await stack.enter_async_context(serving(state, "127.0.0.1", 0, Dashboard(state).answer))
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        yield Gateway(url=address.url, model=server, database=database, app=app, http=http)
