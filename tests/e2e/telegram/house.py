"""A daemon's inside in this process, on Telegram by the fake at the wire."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway.app import App, open_app, running
from gateway.config.load import load
from gateway.serve import Serving, serving
from tests.fakes.telegram_server import TelegramServer
from tests.fakes.telegram_world import Chat, User

TOKEN = "123456:TEST-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    server: TelegramServer
    app: App
    serving: Serving
    ann: User
    dm: Chat

    def says(self, text: str, **more: Any) -> Any:
        return self.server.user_says(self.dm, self.ann, text, **more)

    async def answer_to(self, text: str, **more: Any) -> str:
        before = len(self.server.answers(self.dm.id))
        self.says(text, **more)
        return (await self.server.answered(self.dm.id, before + 1))[-1]


def write_config(
    home: Path, server: TelegramServer, *, sections: dict[str, Any] | None = None, **telegram: Any
) -> None:
    section = {"enabled": True, "token": server.token, "api_base": server.url, "allowed_users": ["7"], **telegram}
    usual = {"platforms": {"telegram": section}, "api": {"port": 0}, "model": {"provider": "practice"}}
    config = {**usual, **(sections or {})}
    (home / "config.yaml").write_text(yaml.safe_dump(config))


@asynccontextmanager
async def daemon(home: Path, server: TelegramServer, **telegram: Any) -> AsyncGenerator[tuple[App, Serving]]:
    """From the configuration as a stranger would write it. Leaving drains, as SIGTERM does."""
    write_config(home, server, **telegram)
    async with open_app(home, load(home, {})) as app, serving(app) as served, running(app):
        yield app, served


@asynccontextmanager
async def scene(home: Path, **telegram: Any) -> AsyncGenerator[Scene]:
    async with TelegramServer() as server, daemon(home, server, **telegram) as (app, served):
        ann = server.user(7, "Ann")
        yield Scene(server=server, app=app, serving=served, ann=ann, dm=server.dm(ann))
        assert server.violations == []
        assert server.floods == []
