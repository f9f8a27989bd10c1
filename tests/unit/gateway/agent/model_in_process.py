"""The real client in front of the scripted server, without waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.interface import Answer, ModelRequest
from gateway.agent.models.retry import RetryPolicy
from tests.fakes.model_server import ModelServer, Script

HELLO = [{"role": "system", "content": "You are kind."}, {"role": "user", "content": "hello"}]
FILES = {
    "type": "function",
    "function": {
        "name": "files",
        "description": "Files in the workspace",
        "parameters": {"type": "object", "properties": {"action": {"type": "string"}}},
    },
}
CLOCK = {**FILES, "function": {**FILES["function"], "name": "clock"}}


@dataclass
class ModelTime:
    """Sleeping takes none and moves the clock."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def retry_policy(self, **changes: Any) -> RetryPolicy:
        return RetryPolicy(**{"sleep": self.sleep, "clock": lambda: self.now, "jitter": lambda: 1.0, **changes})


@dataclass
class ModelHarness:
    server: ModelServer
    model: OpenAIModel
    time: ModelTime
    shown: list[str] = field(default_factory=list)
    observed: list[tuple] = field(default_factory=list)

    async def ask(self, messages: list | None = None, **fields: Any) -> Answer:
        return await self.model.ask(ModelRequest(messages=messages or HELLO, **fields), self.shown.append)


@asynccontextmanager
async def model_in_process(
    script: Script = (), *, settings: dict | None = None, **server: Any
) -> AsyncIterator[ModelHarness]:
    time = ModelTime()
    async with ModelServer(script, **server) as fake:
        chosen = {
            "base_url": fake.url,
            "name": "big",
            "api_key": "sk-secret-123",
            "timeout_seconds": 60,
            **(settings or {}),
        }
        observed: list[tuple] = []
        observe = lambda *seen: observed.append(seen)  # noqa: E731
        model = OpenAIModel(ModelSettings(**chosen), retry_policy=time.retry_policy(), observe=observe)
        talk = ModelHarness(fake, model, time, observed=observed)
        try:
            yield talk
        finally:
            await model.aclose()
