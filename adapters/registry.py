"""Which platforms there are. A platform's client library is imported only when an adapter for it is built."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from adapters.base import Adapter
from sessions.keys import Platform

REGISTERED = (Platform.TELEGRAM,)


class Unavailable(Exception):
    """There is no adapter of this name, or its client library is not installed. `str()` says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the gateway may know of a platform without its client library. `adapter` and `config` are written `module:name`."""

    platform: Platform
    title: str
    adapter: str
    config: str
    config_keys: tuple[str, ...]
    sdk: str
    extra: str


def manifest(name: str) -> Manifest:
    if name not in REGISTERED:
        raise Unavailable(f"There is no platform {name!r}. There are: {', '.join(REGISTERED)}.")
    return import_module(f"adapters.{name}").MANIFEST


def build(name: str, settings: Mapping[str, Any]) -> Adapter:
    """An adapter that is not running yet. `settings` holds `config_keys` of the manifest; a key that is left out has its default."""
    found = manifest(name)
    try:
        config, adapter = _load(found.config), _load(found.adapter)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != found.sdk:
            raise
        raise Unavailable(
            f"{found.title} needs its client library. Run: pip install 'hermes-gateway[{found.extra}]'"
        ) from None
    return cast(Adapter, adapter(config(**settings)))


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
