"""Loads the texts for the model, which are files beside this one."""

from functools import lru_cache
from importlib.resources import files


@lru_cache
def load_prompt(name: str) -> str:
    return (files(__name__) / f"{name}.md").read_text(encoding="utf-8").strip()
