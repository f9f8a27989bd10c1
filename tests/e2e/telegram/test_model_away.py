"""Two hundred chats wait for a model that is down, the daemon is killed with -9 in between: one line and one answer for each, and the model
is not fallen upon when it is back."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.texts import say
from tests.e2e.telegram.daemon import process
from tests.fakes.model_replies import Failure, Reply
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer

AWAY = say("model.unreachable", minutes=30)
CHATS = 200


class SwitchedEndpoint:
    """Down until told otherwise. Notes who was at it at once within the first second of being back, and the order of the answers."""

    def __init__(self) -> None:
        self.up = False
        self.back_at: float | None = None
        self.busy = self.most = 0
        self.asked: list[str] = []

    def __call__(self, body: dict[str, Any]) -> Reply | Failure:
        if not self.up:
            return Failure(status=503)
        self.back_at = self.back_at or time.monotonic()
        text = str(body["messages"][-1]["content"]).rpartition("\n")[2]
        self.asked.append(text)
        self.busy += 1
        if time.monotonic() - self.back_at < 1:
            self.most = max(self.most, self.busy)

        async def before() -> None:
            try:
                await asyncio.sleep(0.2)
            finally:
                self.busy -= 1

        return Reply(text=f"answer to {text}", before=before)


@pytest.mark.chaos
@pytest.mark.timeout(300)
async def test_two_hundred_chats_a_model_that_is_down_and_a_kill(home: Path) -> None:
    endpoint = SwitchedEndpoint()
    async with TelegramServer() as server, ModelServer(endpoint) as model:
        sections = {"model": {"base_url": model.url, "name": "big", "api_key": "k"}}
        people = [server.user(1_000 + number, f"P{number}") for number in range(CHATS)]
        chats = [server.dm(person) for person in people]

        def said_in_all() -> list[list[str]]:
            return [server.answers(chat.id) for chat in chats]

        daemon = await process(home, server, sections=sections, allowed_users=["*"])
        for chat, person in zip(chats, people, strict=True):
            server.user_says(chat, person, f"m{person.id}")
        await server.until(lambda: all(each == [AWAY] for each in said_in_all()), timeout=120)
        daemon.kill()
        await daemon.wait()
        daemon = await process(home, server, sections=sections, allowed_users=["*"])
        endpoint.up = True
        answered = [[AWAY, f"answer to m{person.id}"] for person in people]
        await server.until(lambda: said_in_all() == answered, timeout=120)
        daemon.kill()
        await daemon.wait()
    assert endpoint.most <= 8
    assert sorted(endpoint.asked) == sorted(f"m{person.id}" for person in people)  # nobody was asked for twice
    places = [int(text[1:]) - 1_000 for text in endpoint.asked]
    assert max(abs(place - number) for number, place in enumerate(places)) < 32
    assert server.violations == []
