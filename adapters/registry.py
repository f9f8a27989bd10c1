"""Which platforms there are: our own, by the name of their folder, and those of other packages, by their entry point.

A manifest says everything that the gateway has to know of a platform. Neither the manifest nor the section that it names imports the
platform's client library; that happens when an adapter is built.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, cast

from pydantic import BaseModel, Field, SecretStr, create_model

from adapters.base import Adapter
from adapters.section import NO_SECRET, PlatformSection
from sessions.keys import ChatKind

OUR_OWN = ("telegram", "discord", "slack", "whatsapp")
ENTRY_POINTS = "hermes_gateway.adapters"
_FROM_THE_GATEWAY = ("webhook_url",)  # keys of an adapter's configuration that stand in no file


class Unavailable(Exception):
    """There is no adapter of this name, or its client library is not installed. `str()` says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A key without which an enabled platform cannot work, or would believe anybody. `mode`: needed only if `mode` has this value."""

    key: str
    why: str
    mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the gateway may know of a platform without its client library. `adapter` and `config` are written `module:name`.

    `config` is a pydantic model or a dataclass. `config_keys` are the fields of it that the section of the platform has besides the
    common ones, and `webhook_url`, which the gateway fills in. In a dataclass, a text without a place in `repr` is a secret.
    `webhook_mode`: the value of `mode` with which the platform calls `api.public_url`; `*`: always. `start`: what a person types who
    wants to become the owner, before the code. An empty `adapter`: not built yet.
    `setup_steps`: what a person does on the platform to get the needed keys, each in one sentence.
    """

    platform: str
    title: str
    adapter: str
    config: str
    config_keys: tuple[str, ...]
    sdk: str
    extra: str
    needed: tuple[Needed, ...] = ()
    webhook_mode: str = ""
    start: str = "/start"
    chat_kinds: tuple[ChatKind, ...] = tuple(ChatKind)
    normal_user_id: Callable[[str], str] = str
    setup_steps: tuple[str, ...] = ()

    def is_called(self, section: PlatformSection) -> bool:
        """Returns whether the platform calls us, with this section."""
        return self.webhook_mode == "*" or (self.webhook_mode != "" and self._mode(section) == self.webhook_mode)

    def missing(self, section: PlatformSection) -> Mapping[str, str]:
        """Returns the keys that an enabled platform lacks, with the reason why it needs them."""
        wanted = [need for need in self.needed if need.mode in {"", self._mode(section)}]
        return {need.key: need.why for need in wanted if not plain(getattr(section, need.key))}

    def _mode(self, section: PlatformSection) -> str:
        return str(getattr(section, "mode", ""))


def manifest(name: str) -> Manifest:
    """Returns the manifest of a platform. Raises Unavailable when there is none of this name."""
    if name in OUR_OWN:  # first, so that no other package can take the place of one
        return cast(Manifest, import_module(f"adapters.{name}").MANIFEST)
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        return cast(Manifest, entry.load())
    raise Unavailable(f"There is no platform {name!r}. There are: {', '.join([*OUR_OWN, *of_others()])}.")


def title_of(name: str) -> str:
    """Returns how people write the name of a platform, also of one whose package is not installed any more."""
    try:
        return manifest(name).title
    except Unavailable:
        return name.title()


@cache
def of_others() -> tuple[str, ...]:
    """Returns the names of platforms that other packages bring; nothing of them is imported."""
    return tuple(sorted({entry.name for entry in entry_points(group=ENTRY_POINTS)} - set(OUR_OWN)))


def is_built(name: str) -> bool:
    return bool(manifest(name).adapter)


@cache
def section_model(name: str) -> type[PlatformSection]:
    """Returns the model of `platforms.<name>`: the common keys and those of the adapter's configuration."""
    found = manifest(name)
    config = _load(found.config)
    own = _fields(config)
    wanted = [key for key in found.config_keys if key not in (*PlatformSection.model_fields, *_FROM_THE_GATEWAY)]
    fields: dict[str, Any] = {key: own[key] for key in wanted}
    section = create_model(f"{found.title}Section", __base__=PlatformSection, __doc__=f"{found.title}.", **fields)
    section.keys_from = config if issubclass(config, BaseModel) else None
    return section


def _fields(config: Any) -> dict[str, tuple[Any, Any]]:
    """Returns the fields of a pydantic model or a dataclass: name → type and default."""
    if issubclass(config, BaseModel):
        return {key: (field.annotation, field) for key, field in config.model_fields.items()}
    hints = typing.get_type_hints(config, include_extras=True)
    return {field.name: _of_dataclass(field, hints[field.name]) for field in dataclasses.fields(config)}


def _of_dataclass(field: "dataclasses.Field[Any]", hint: Any) -> tuple[Any, Any]:
    about = field.metadata.get("doc", f"See the documentation of the adapter: {field.name}.")
    if hint is str and not field.repr:  # how an adapter of another package marks a secret without importing pydantic
        return SecretStr, Field(default=NO_SECRET, description=about)
    default = "" if field.default is dataclasses.MISSING and hint is str else field.default
    return hint, Field(default=default, description=about)


def build(name: str, section: PlatformSection, *, webhook_url: str = "") -> Adapter:
    """Returns an adapter that is not running yet. What is empty in the section has the default of the adapter's configuration."""
    found = manifest(name)
    try:
        config, adapter = _load(found.config), _load(found.adapter)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != found.sdk:  # a fault of the adapter itself, not a missing extra
            raise
        from sessions.packages import install_command

        raise Unavailable(f"{found.title} needs its client library. Run: {install_command(found.extra)}") from None
    return cast(Adapter, adapter(config(**settings(name, section, webhook_url=webhook_url))))


def settings(name: str, section: PlatformSection, *, webhook_url: str = "") -> Mapping[str, Any]:
    """Returns what the adapter is made of, as plain values. Other changes of a section need no new adapter."""
    values = {key: plain(value) for key, value in section} | {"webhook_url": webhook_url}
    return {key: values[key] for key in manifest(name).config_keys if values.get(key)}


def plain(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
