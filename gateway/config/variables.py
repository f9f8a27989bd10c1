"""Converts variables such as HERMES_API__PORT to sections with keys, by pydantic-settings."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from gateway.config.problems import Path
from gateway.config.schema_info import SchemaInfo, from_text
from gateway.config.sources import PREFIX, Setting


class _Variables(EnvSettingsSource):
    """Reads the variables that it is given, instead of those of the process, and leaves every value a text."""

    def __init__(self, schema: SchemaInfo, found: Iterable[Setting]) -> None:
        self._found = {setting.name.lower(): setting.value for setting in found}
        super().__init__(cast(Any, schema.root), env_prefix=PREFIX, env_nested_delimiter="__")
        self.config = {}  # it is strict, and then the library would make numbers of texts by itself

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._found

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:  # noqa: ARG002
        return value


def nested(found: Iterable[Setting], schema: SchemaInfo) -> dict[str, Any]:
    """Sections with keys, each value as its key wants it."""
    return cast(dict[str, Any], _typed(_Variables(schema, found)(), (), schema))


def _typed(value: Any, path: Path, schema: SchemaInfo) -> Any:
    if isinstance(value, dict):
        return {name: _typed(one, (*path, name), schema) for name, one in cast(dict[str, Any], value).items()}
    return from_text(value, schema.takes(path)) if isinstance(value, str) else value
