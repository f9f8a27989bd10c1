"""Tests an answer at the moment when it is given, and writes confirmed ones into the home, one at a time."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from adapters.base import DeliveryError
from adapters.registry import Unavailable, build
from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ask_ollama, model_settings
from gateway.agent.models.interface import ModelError, ModelRequest
from gateway.agent.models.retry import RetryPolicy
from gateway.cli.doctor.remote_checks import webhook_url
from gateway.cli.service_view import service_sources
from gateway.config.editing import edit, example, schema
from gateway.config.model_choice import choose_model
from gateway.config.reading import Loaded, read
from gateway.config.sources import YAML, Sources
from gateway.home import prepare_home, write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    home: Path
    environ: Mapping[str, str]

    def begin(self) -> None:
        """Writes the documented configuration, where there is none yet."""
        prepare_home(self.home)
        if not (self.home / YAML).exists():
            write_private(self.home / YAML, example())
            write_private(self.home / "config.schema.json", schema())

    @property
    def loaded(self) -> Loaded:
        """Reads the configuration. Raises BadConfig."""
        return read(self._sources)

    @property
    def _sources(self) -> Sources:
        return service_sources(self.home, self.environ)

    def tried(self, values: Mapping[str, str]) -> Loaded:
        """What the configuration would be with these values. Nothing is written. Raises BadConfig."""
        return read(edit(self._sources, values).sources) if values else self.loaded

    def keep(self, values: Mapping[str, str]) -> None:
        """Writes all values or none: secrets into .env, comments kept. Raises BadConfig when the result could not be used."""
        # Every edit was made and checked in memory; from here on only a full disk can stop it.
        edit(self._sources, values).write(self.home)


TIMEOUT_SECONDS = 60.0
_HELLO = "Answer with the one word: ready"
_SOMEBODY_WAITS = RetryPolicy(attempts=2, last_attempts=2)
"""Runs wait half a minute for an endpoint to come back. Here a person looks at the screen, and the address may just be misspelt."""


class NotWorking(Exception):
    """`str()` says what is wrong, in words for the operator."""


def call_model(loaded: Loaded) -> str:
    """Makes one short call. Returns the model's line for the screen. Raises NotWorking."""
    chosen = choose_model(loaded.config, loaded.variables, ask_ollama)
    if chosen.provider == "practice":
        return str(chosen)
    try:
        asyncio.run(_call(OpenAIModel(model_settings(loaded.config, chosen), retry_policy=_SOMEBODY_WAITS)))
    except (ModelError, TimeoutError) as error:
        raise NotWorking(str(error) or "no answer within a minute") from error
    return str(chosen)


async def _call(model: OpenAIModel) -> None:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            # 200 tokens: a model that reasons first may give an empty answer to less.
            await model.ask(ModelRequest(messages=[{"role": "user", "content": _HELLO}], max_output_tokens=200))
    finally:
        await model.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBot:
    """Who the bot is on a platform. `chat_link` makes the address that opens a chat with it and sends a code; empty where there is none."""

    name: str
    notes: tuple[str, ...]
    chat_link: Callable[[str], str]


def who_is(loaded: Loaded, platform: str) -> CheckedBot:
    """Returns who the bot is on the platform. Raises NotWorking."""
    section = loaded.config.platforms.by_name()[platform]
    url = webhook_url(loaded, platform) if loaded.config.api.public_url else ""
    try:
        return asyncio.run(_who_is(platform, section, url))
    except (DeliveryError, Unavailable, TimeoutError, ValueError) as error:
        raise NotWorking(str(error) or "no answer within a minute") from error


async def _who_is(platform: str, section: object, url: str) -> CheckedBot:
    adapter = build(platform, section, webhook_url=url)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            name = await adapter.check()
        return CheckedBot(name=name, notes=tuple(adapter.setup_notes()), chat_link=adapter.chat_link)
    finally:
        await adapter.close()
