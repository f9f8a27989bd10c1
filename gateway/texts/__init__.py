"""Everything the house itself says in a chat: one catalogue per language beside this file. The agent's own words are not here."""

import tomllib
from functools import lru_cache
from importlib.resources import files
from string import Formatter


@lru_cache
def _catalogue(language: str) -> dict[str, dict[str, str]]:
    return tomllib.loads((files(__name__) / f"{language}.toml").read_text(encoding="utf-8"))


def say(name: str, /, *, language: str = "en", **values: object) -> str:
    """The text of this name (`run.stopped`) with its values filled in. A missing name or value is a bug and raises KeyError."""
    section, _, key = name.partition(".")
    return _catalogue(language)[section][key].format(**values)


def needed(name: str, *, language: str = "en") -> set[str]:
    """The values that a text wants."""
    section, _, key = name.partition(".")
    return {field for _, field, _, _ in Formatter().parse(_catalogue(language)[section][key]) if field}
