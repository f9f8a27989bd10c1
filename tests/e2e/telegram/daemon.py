"""A daemon's inside in this process, on Telegram by the fake at the wire."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import Connection, text

from gateway.app import open_app, running
from gateway.config.reading import load
from gateway.context import App
from gateway.daemon import Serving, serving
from sessions import outbox
from sessions.clock import Clock, now_ms
from sessions.db import Database
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer
from tests.fakes.telegram_world import TelegramChat, User

TOKEN = "123456:TEST-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    server: TelegramServer
    app: App
    serving: Serving
    ann: User
    dm: TelegramChat

    def says(self, text: str, **more: Any) -> Any:
        return self.server.user_says(self.dm, self.ann, text, **more)

    async def answer_to(self, text: str, **more: Any) -> str:
        before = len(self.server.answers(self.dm.id))
        self.says(text, **more)
        return (await self.server.answered(self.dm.id, before + 1))[-1]


async def settled(database: Database) -> None:
    """Until nothing waits to be sent any more: what a chat has seen is marked as sent a moment later."""
    async with asyncio.timeout(30):
        while await database.read(_open):
            await asyncio.sleep(0.01)


def _open(conn: Connection) -> int:
    query = "SELECT count(*) FROM outbox WHERE state NOT IN ('sent', 'dead')"
    return int(conn.execute(text(query)).scalar_one())


async def until_dead(s: Scene, count: int) -> list[str]:
    """Why so many messages will never arrive."""
    async with asyncio.timeout(30):
        while len(rows := await s.app.database.read(outbox.dead_letters)) < count:
            await asyncio.sleep(0.01)
    return [row.last_error or "" for row in rows]


async def until_tried(s: Scene, what: str, count: int) -> None:
    """Until a message has so many `attempts` or `doubts` behind it."""
    query = text(f"SELECT max({what}) FROM outbox")
    async with asyncio.timeout(30):
        while (await s.app.database.read(lambda conn: conn.execute(query).scalar_one()) or 0) < count:
            await asyncio.sleep(0.01)


def write_config(
    home: Path, server: TelegramServer, *, sections: dict[str, Any] | None = None, **telegram: Any
) -> None:
    section = {"enabled": True, "token": server.token, "api_base": server.url, "allowed_users": ["7"], **telegram}
    usual = {"platforms": {"telegram": section}, "api": {"port": 0}, "model": {"provider": "practice"}}
    config = {**usual, **(sections or {})}
    save(home / "config.yaml", yaml.safe_dump(config))


def save(path: Path, text: str) -> None:
    """All at once, as an editor does: a daemon that looks meanwhile must not find half a file."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


@asynccontextmanager
async def daemon(
    home: Path, server: TelegramServer, *, clock: Clock = now_ms, **telegram: Any
) -> AsyncGenerator[tuple[App, Serving]]:
    """From the configuration as a stranger would write it. Leaving drains, as SIGTERM does."""
    write_config(home, server, **telegram)
    async with open_app(home, load(home, {}), clock=clock) as app, serving(app) as served, running(app):
        yield app, served


async def process(home: Path, server: TelegramServer, **telegram: Any) -> asyncio.subprocess.Process:
    """`hermes gateway run`, which can be killed."""
    write_config(home, server, **telegram)
    quiet = asyncio.subprocess.DEVNULL
    program = [sys.executable, "-m", "gateway.cli.main", "gateway", "run"]
    environ = {**os.environ, "HERMES_HOME": str(home)}
    return await asyncio.create_subprocess_exec(*program, env=environ, stdin=quiet, stdout=quiet, stderr=quiet)


def of_a_team(model: ModelServer, postgres_url: str, **more: Any) -> dict[str, Any]:
    """The sections of a gateway of a team."""
    return {
        "model": {"base_url": model.url, "name": "big", "api_key": "k"},
        "database": {"url": postgres_url},
        "memory": {"enabled": False},
        **more,
    }


@asynccontextmanager
async def scene(home: Path, **telegram: Any) -> AsyncGenerator[Scene]:
    async with TelegramServer() as server, daemon(home, server, **telegram) as (app, served):
        ann = server.user(7, "Ann")
        yield Scene(server=server, app=app, serving=served, ann=ann, dm=server.dm(ann))
        assert server.violations == []
        assert server.floods == []


@asynccontextmanager
async def answering(home: Path, *script: Any, **sections: Any) -> AsyncGenerator[tuple[Scene, ModelServer]]:
    """With a model that says what it is told to."""
    async with ModelServer(script) as model:
        chosen = {"base_url": model.url, "name": "big", "api_key": "k"}
        speaks = {"speak": True, "speak_model": "tts", "speak_voice": "nova"} if sections.pop("speaks", False) else {}
        voice = {"voice": {"base_url": model.url, **speaks}} if sections.pop("voice", False) or speaks else {}
        async with scene(home, sections={"model": chosen, **voice}, **sections) as s:
            yield s, model


class Gate:
    """Lets the first words pass, and holds the model before the next ones until told."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self._passed = 0

    async def __call__(self) -> None:
        self._passed += 1
        if self._passed > 1:
            await self.open.wait()
