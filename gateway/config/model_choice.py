"""Chooses the model that answers, and says why this one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from gateway.agent.models.endpoint import OLLAMA, OLLAMA_PORT
from gateway.config.model import Config
from gateway.config.sections import ModelSection

OPENAI, OPENROUTER = "https://api.openai.com/v1", "https://openrouter.ai/api/v1"
ENDPOINTS = {  # the variable with the key, and a small model that is there for every account
    OPENAI: ("OPENAI_API_KEY", "gpt-5-mini"),
    OPENROUTER: ("OPENROUTER_API_KEY", "openai/gpt-5-mini"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenModel:
    """`str()` is the line of the start screen. `why` is a part of a sentence for the operator."""

    provider: Literal["openai", "practice"]
    base_url: str
    api_key: str = field(repr=False)
    name: str
    why: str

    @property
    def where(self) -> str:
        host = urlsplit(self.base_url).hostname or ""
        return f"{host} (Ollama)" if self.base_url == OLLAMA else host

    def names(self, section: ModelSection) -> Sequence[str]:
        """Returns the names of models that may be asked for, the usual one first."""
        return tuple(dict.fromkeys(name for name in (self.name, section.fast, *section.fallbacks) if name))

    def describe(self, section: ModelSection) -> dict[str, Any]:
        """Returns what a session stores about its model. An address may hold a password or a key, so only its plain part is told."""
        address = urlsplit(self.base_url)
        place = urlunsplit((address.scheme, address.netloc.rpartition("@")[2], address.path, "", ""))
        return {
            "provider": self.provider,
            "name": self.name,
            **({"base_url": place} if place else {}),
            **({"fallbacks": section.fallbacks} if section.fallbacks else {}),
            "context_window": section.context_window,
            "max_output_tokens": section.max_output_tokens,
            "timeout_seconds": section.timeout_seconds,
        }

    def __str__(self) -> str:
        place = f"{self.name} at {self.where}" if self.where else self.name
        return f"{place}   {self.why}"


def choose_model(config: Config, environ: Mapping[str, str], ollama_answers: Callable[[], str | None]) -> ChosenModel:
    """What is configured, else a key in the environment, else a local Ollama, else practice.

    `environ` is best `Loaded.variables`, so that a key in `.env` counts. `ollama_answers` is called only if it comes to that.
    """
    if config.model.provider == "practice":
        return _practice()
    if config.model.name:
        return _configured(config, environ)
    for base_url, (variable, name) in ENDPOINTS.items():
        if key := environ.get(variable, "").strip():
            return _openai(base_url, key, name, f"because {variable} is set; paid there")
    if config.api.port != OLLAMA_PORT and (name := ollama_answers()):
        return _openai(OLLAMA, "", name, "because an Ollama runs here; free, nothing leaves this machine")
    return _practice()


def _practice() -> ChosenModel:
    why = "built-in demo, offline, not a real AI"
    return ChosenModel(provider="practice", base_url="", api_key="", name="practice", why=why)


def _configured(config: Config, environ: Mapping[str, str]) -> ChosenModel:
    """An endpoint that is known takes its usual variable when no key is written; where none is written, the keys decide."""
    base_url, key = config.model.base_url, config.model.api_key.get_secret_value()
    keys = {url: found for url, (name, _) in ENDPOINTS.items() if (found := environ.get(name, "").strip())}
    if "base_url" not in config.model.model_fields_set and not key and keys:
        base_url = next(iter(keys))
    key = key or keys.get(base_url.rstrip("/"), "")
    return _openai(base_url, key, config.model.name, "because the configuration names it")


def _openai(base_url: str, key: str, name: str, why: str) -> ChosenModel:
    return ChosenModel(provider="openai", base_url=base_url, api_key=key, name=name, why=why)
