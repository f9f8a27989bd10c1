"""A daemon's inside in this process, on one platform by its fake at the wire."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from adapters.testing.people import Room, Said
from gateway.app import open_app, running
from gateway.config.reading import load
from gateway.context import App
from gateway.daemon import Serving, serving
from tests.e2e.platforms.driver import Driver
from tests.e2e.telegram.daemon import save, settled
from tests.fakes.model_server import ModelServer


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformScene:
    driver: Driver
    app: App
    serving: Serving
    model: ModelServer | None = None

    def says(self, text: str, **more: Any) -> Said:
        return self.driver.says(self.driver.dm(), text, **more)

    async def until(self, ready: Any, timeout: float = 30) -> None:
        await self.driver.server.until(ready, timeout)

    async def answers(self, room: Room, count: int) -> list[str]:
        """The bot's texts in this chat, once there are so many and nothing more is on its way."""
        try:
            await self.until(lambda: len(self.driver.said_by_bot(room)) >= count)
        except TimeoutError:
            raise AssertionError(f"only {self.driver.texts(room)}; {self.serving.chats.states()}") from None
        await settled(self.app.database)
        return self.driver.texts(room)

    async def answer_to(self, text: str, room: Room | None = None, **more: Any) -> str:
        chat = room or self.driver.dm()
        before = len(self.driver.said_by_bot(chat))
        self.driver.says(chat, text, **more)
        return (await self.answers(chat, before + 1))[-1]


def write_config(home: Path, driver: Driver, *, sections: dict[str, Any] | None = None, **section: Any) -> None:
    own = {"enabled": True, "allowed_users": [driver.owner_id], **driver.section(), **section}
    usual = {"platforms": {driver.name: own}, "api": {"port": 0}, "model": {"provider": "practice"}}
    save(home / "config.yaml", yaml.safe_dump({**usual, **(sections or {})}))


@asynccontextmanager
async def daemon(home: Path, driver: Driver, *, hears: bool = True, **section: Any) -> AsyncGenerator[PlatformScene]:
    """Leaving drains, as SIGTERM does. `hears`: wait until it hears what people say."""
    write_config(home, driver, **section)
    async with open_app(home, load(home, {})) as app, serving(app) as served, running(app):
        driver.connected_to(served.url)
        if hears:
            await driver.until_ready()
        yield PlatformScene(driver=driver, app=app, serving=served)


@asynccontextmanager
async def scene(home: Path, driver: Driver, *, hears: bool = True, **section: Any) -> AsyncGenerator[PlatformScene]:
    async with driver.server, daemon(home, driver, hears=hears, **section) as running_scene:
        yield running_scene
    assert driver.server.violations == []


@asynccontextmanager
async def answering(home: Path, driver: Driver, *script: Any, **section: Any) -> AsyncGenerator[PlatformScene]:
    """With a model that says what it is told to."""
    async with ModelServer(script) as model:
        chosen = {"base_url": model.url, "name": "big", "api_key": "k"}
        speaks = {"base_url": model.url, "speak": True, "speak_model": "tts"}
        voice = {"voice": speaks} if section.pop("speaks", False) else {}
        async with scene(home, driver, sections={"model": chosen, **voice}, **section) as s:
            yield PlatformScene(driver=s.driver, app=s.app, serving=s.serving, model=model)


async def process(
    home: Path, driver: Driver, port: int, *, sections: dict[str, Any] | None = None, **section: Any
) -> asyncio.subprocess.Process:
    """`hermes gateway run`, which can be killed."""
    write_config(home, driver, sections={**(sections or {}), "api": {"port": port}}, **section)
    driver.connected_to(f"http://127.0.0.1:{port}")
    quiet = asyncio.subprocess.DEVNULL
    program = [sys.executable, "-m", "gateway.cli.main", "gateway", "run"]
    environ = {**os.environ, "HERMES_HOME": str(home)}
    return await asyncio.create_subprocess_exec(*program, env=environ, stdin=quiet, stdout=quiet, stderr=quiet)
