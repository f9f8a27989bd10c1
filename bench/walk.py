"""What runs from the wire to the answer: the files and functions of the gateway that one message passes through.

`python -m bench.walk` prints a line for each way in; `--functions` names what ran. The daemon is in this process, between a model
and a Telegram server at the wire. Each way is gone once before, so that what is set up for the first message does not count, nor the fold
of a session that the first /new ended. Then it is gone three times, and what ran each time counts: listeners of commits, and no heartbeat.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import aiohttp
import yaml
from sqlalchemy import Connection, text

from adapters.testing.telegram import TelegramServer
from bench.table import ResultTable
from gateway.app import open_app, running
from gateway.config.reading import load
from gateway.context import App
from gateway.daemon import serving
from gateway.observe import logging
from tests.fakes.model_server import ModelServer

ROOT = Path(__file__).parents[1]
OURS = tuple(str(ROOT / package) + "/" for package in ("sessions", "adapters", "gateway"))
FAKES = str(ROOT / "adapters" / "testing") + "/"
PASSES = 3
BEFORE = {"a Telegram message": (70, 401), "a streamed chat completion": (52, 315), "/new in a chat": (47, 208)}
"""Files and functions at commit 03bc2fc, which had no resets, jobs, recall or folds, and no fair share of places at the model."""


class Tracer:
    """Notes which code runs while it is on, in every thread that begins after it was made."""

    def __init__(self) -> None:
        self.ran: set[CodeType] = set()
        self._on = False
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if self._on and event == "call":
            self.ran.add(frame.f_code)

    @contextmanager
    def tracing(self) -> Iterator[None]:
        self.ran, self._on = set(), True
        try:
            yield
        finally:
            self._on = False

    def functions(self) -> set[tuple[str, str]]:
        """File and name of each function of the gateway; comprehensions and lambdas belong to the function around them."""
        return {
            (str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname)
            for code in self.ran
            if code.co_filename.startswith(OURS) and not code.co_filename.startswith(FAKES) and "<" not in code.co_name
        }


@asynccontextmanager
async def daemon(home: Path) -> AsyncGenerator[tuple[App, str, TelegramServer]]:
    """The app, the address of its API, and the platform."""
    async with (
        ModelServer(then="It is decided. We release on Monday.", keeps=False) as model,
        TelegramServer() as telegram,
    ):
        platform = {"enabled": True, "token": telegram.token, "api_base": telegram.url, "allowed_users": ["7"]}
        config = {
            "model": {"base_url": model.url, "name": "big", "api_key": "k"},
            "platforms": {"telegram": platform},
            "api": {"port": 0, "keys": [{"name": "bench", "key": "k" * 32}]},
        }
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        async with open_app(home, load(home, {})) as app, serving(app) as served, running(app):
            yield app, served.url, telegram


async def at_rest(app: App) -> None:
    """Returns when no run is active, all that goes out is marked as sent, and ended sessions are folded."""
    async with asyncio.timeout(30):
        while await app.database.read(_open):  # noqa: ASYNC110  # nobody tells when everything is over
            await asyncio.sleep(0.02)


def _open(conn: Connection) -> int:
    sent = "SELECT count(*) FROM outbox WHERE state NOT IN ('sent', 'dead')"
    ended = "SELECT count(*) FROM runs WHERE status = 'running'"
    folded = (
        "SELECT count(*) FROM messages m JOIN sessions s ON s.id = m.session_id LEFT JOIN folds f ON f.session_id = s.id"
        " WHERE s.ended_at IS NOT NULL AND m.id > coalesce(f.folded_to, 0)"
    )
    return int(conn.execute(text(f"SELECT ({sent}) + ({ended}) + ({folded})")).scalar_one())


async def say(telegram: TelegramServer, words: str) -> None:
    ann = telegram.user(7, "Ann")
    dm = telegram.dm(ann)
    before = len(telegram.answers(dm.id))
    telegram.user_says(dm, ann, words)
    await telegram.answered(dm.id, before + 1)


async def complete(url: str) -> None:
    headers = {"Authorization": f"Bearer {'k' * 32}", "X-Hermes-Session-Id": "walk"}
    body = {"model": "big", "stream": True, "messages": [{"role": "user", "content": "What did we decide?"}]}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer,
    ):
        assert (await answer.read()).rstrip().endswith(b"[DONE]")


async def walks(home: Path) -> dict[str, set[tuple[str, str]]]:
    tracer = Tracer()
    async with daemon(home) as (app, url, telegram):
        ways: dict[str, Callable[[], Awaitable[None]]] = {
            "a Telegram message": lambda: say(telegram, "What did we decide?"),
            "a streamed chat completion": lambda: complete(url),
            "/new in a chat": lambda: say(telegram, "/new"),
        }
        found: dict[str, set[tuple[str, str]]] = {}
        for name, way in ways.items():
            passes: list[set[tuple[str, str]]] = []
            for _ in range(1 + PASSES):
                await at_rest(app)
                with tracer.tracing():
                    await way()
                    await at_rest(app)
                passes.append(tracer.functions())
            found[name] = set.intersection(*passes[1:])
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", action="store_true", help="name them")
    named = parser.parse_args().functions
    logging.configure("error")
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o700)
        found = asyncio.run(walks(Path(home)))
    table = ResultTable("From the wire to the answer (beside: at commit 03bc2fc)")
    for name, functions in found.items():
        files, before = len({file for file, _ in functions}), BEFORE[name]
        table.row(f"{name}: files", str(files), str(before[0]), files / before[0], "")
        table.row(f"{name}: functions", str(len(functions)), str(before[1]), len(functions) / before[1], "")
    print(table)
    for name, functions in found.items() if named else ():
        print(f"{name}\n" + "\n".join(f"  {file}  {function}" for file, function in sorted(functions)))


if __name__ == "__main__":
    main()
