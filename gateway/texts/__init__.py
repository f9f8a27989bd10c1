"""Loads the texts that the gateway itself says in a chat."""

import tomllib
from functools import lru_cache
from importlib.resources import files
from string import Formatter


@lru_cache
def _catalogue() -> dict[str, dict[str, str]]:
    return tomllib.loads((files(__name__) / "en.toml").read_text(encoding="utf-8"))


def say(name: str, /, **values: object) -> str:
    """Returns the text of this name (`run.stopped`), with its values filled in. Raises KeyError for a missing name or value."""
    section, _, key = name.partition(".")
    return _catalogue()[section][key].format(**values)


def needed(name: str) -> set[str]:
    """Returns the names of the values that a text needs."""
    section, _, key = name.partition(".")
    return {field for _, field, _, _ in Formatter().parse(_catalogue()[section][key]) if field}
