"""Converts sections of the configuration to the settings of the agent and its runs, which do not read it themselves."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from gateway.agent.memory.fold_worker import FoldSettings
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.tools.registry import Toolbox
from gateway.config.changes import leaves
from gateway.config.model import Config
from gateway.config.model_choice import ChosenModel
from gateway.runs.services import AgentProfile
from sessions.records import Run, RunKind, Session, Source


def secrets(config: Config) -> list[str]:
    """Every value of a secret key, found by its type."""
    return [value.get_secret_value() for _, value in leaves(config) if isinstance(value, SecretStr)]


def model_settings(config: Config, chosen: ChosenModel) -> ModelSettings:
    return ModelSettings(
        base_url=chosen.base_url,
        name=chosen.name,
        api_key=chosen.api_key,
        fast=config.model.fast,
        fallbacks=tuple(config.model.fallbacks),
        context_window=config.model.context_window,
        window_is_known="context_window" in config.model.model_fields_set,
        max_output_tokens=config.model.max_output_tokens,
        timeout_seconds=config.model.timeout_seconds,
        answer_bytes=config.limits.answer_bytes,
    )


def voice_settings(config: Config) -> ModelSettings | None:
    """None: voice messages are not turned into text."""
    voice = config.voice
    if not voice.base_url:
        return None
    key = voice.api_key.get_secret_value()
    return ModelSettings(base_url=voice.base_url, name=voice.model, api_key=key, transcription=voice.model)


def embedding_settings(config: Config) -> ModelSettings | None:
    """None: nothing is searched by meaning."""
    section = config.memory.embeddings
    if not section.base_url or not config.memory.enabled:
        return None
    return ModelSettings(base_url=section.base_url, name=section.model, api_key=section.api_key.get_secret_value())


def agent_profile(config: Config, run: Run, session: Session) -> AgentProfile:
    agent = config.agents.get(session.agent) or config.agents["main"]
    names = [name for name in agent.tools if name != "memory" or config.memory.enabled]
    if run.kind is RunKind.JOB and run.deployment is None and (run.route is None or session.source == Source.JOB):
        names = [
            name for name in names if name != "ask_human"
        ]  # nobody would see the question, or could answer it there
    prompt = run.options.system_prompt or agent.system_prompt
    return AgentProfile(system_prompt=prompt, toolbox=Toolbox.of(names), remembers=config.memory.enabled)


def fold_settings(config: Config) -> FoldSettings:
    return FoldSettings(enabled=config.memory.enabled, fast=config.model.fast or None)


def can_save(config: Config) -> bool:
    """Whether the agent has a tool with which it can save something for later."""
    tools = set(config.agents["main"].tools) - (set() if config.memory.enabled else {"memory"})
    return bool(tools & {"memory", "skill"})


def model_names(config: Config, chosen: ChosenModel) -> Sequence[str]:
    names = (chosen.name, config.model.fast, *config.model.fallbacks)
    return tuple(dict.fromkeys(name for name in names if name))


def describe_model(config: Config, chosen: ChosenModel) -> dict[str, Any]:
    """Returns what a session stores about its model. An address may hold a password or a key, so only its plain part is told."""
    address, section = urlsplit(chosen.base_url), config.model
    place = urlunsplit((address.scheme, address.netloc.rpartition("@")[2], address.path, "", ""))
    return {
        "provider": chosen.provider,
        "name": chosen.name,
        **({"base_url": place} if place else {}),
        **({"fallbacks": section.fallbacks} if section.fallbacks else {}),
        "context_window": section.context_window,
        "max_output_tokens": section.max_output_tokens,
        "timeout_seconds": section.timeout_seconds,
    }
