"""Converts variables such as HERMES_API__PORT to sections with keys, by pydantic-settings."""

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from gateway.config.schema_info import from_text, takes
from gateway.config.sources import PREFIX


class Variables(EnvSettingsSource):
    """Reads the variables that it is given, instead of those of the process. What fits no key stays text, for the validation to find."""

    def __init__(self, root: Any, variables: Mapping[str, str]) -> None:
        self._variables = {name.lower(): value for name, value in variables.items()}
        super().__init__(root, env_prefix=PREFIX, env_nested_delimiter="__")

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._variables

    def decode_complex_value(self, field_name: str, field: FieldInfo | None, value: Any) -> Any:  # noqa: ARG002
        """A list may be written with commas, without being JSON."""
        return from_text(value, takes(field.annotation) if field else None)
