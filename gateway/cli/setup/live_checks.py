"""Tests an answer at the moment when it is given."""

import asyncio

from adapters.base import ChecksSetup, DeliveryError
from adapters.registry import Unavailable, build
from gateway.agent.models.interface import ModelError, ModelRequest
from gateway.agent.models.openai import OpenAIModel
from gateway.config.agent_settings import model_settings
from gateway.config.load import Loaded
from gateway.config.model_choice import ask_ollama, choose_model

TIMEOUT_SECONDS = 60.0
_HELLO = "Answer with the one word: ready"


class NotWorking(Exception):
    """`str()` says what is wrong, in words for the operator."""


def call_model(loaded: Loaded) -> str:
    """One short call. Returns the model's line for the screen. Raises NotWorking."""
    chosen = choose_model(loaded.config, loaded.variables, ask_ollama)
    if chosen.provider == "practice":
        return str(chosen)
    try:
        asyncio.run(_call(OpenAIModel(model_settings(loaded.config, chosen))))
    except (ModelError, TimeoutError) as error:
        raise NotWorking(str(error) or "no answer within a minute") from error
    return str(chosen)


async def _call(model: OpenAIModel) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await model.ask(ModelRequest(messages=[{"role": "user", "content": _HELLO}], max_output_tokens=200))
    finally:
        await model.aclose()


def who_is(loaded: Loaded, platform: str) -> str:
    """Who the bot is on this platform. Raises NotWorking."""
    section = loaded.config.platforms.by_name()[platform]
    url = f"{loaded.config.api.public_url}/webhooks/{platform}" if loaded.config.api.public_url else ""
    try:
        return asyncio.run(_who_is(platform, section, url))
    except (DeliveryError, Unavailable, TimeoutError, ValueError) as error:
        raise NotWorking(str(error) or "no answer within a minute") from error


async def _who_is(platform: str, section: object, url: str) -> str:
    adapter = build(platform, section, webhook_url=url)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await adapter.check() if isinstance(adapter, ChecksSetup) else ""
    finally:
        await adapter.close()
