"""A home with a configuration, and the ways to look at it."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from gateway.config.problems import BadConfig, Problem
from gateway.config.reading import Loaded, load


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def loaded(home: Path) -> Callable[..., Loaded]:
    """The configuration of a YAML, a `.env` and an environment."""

    def read(yaml: str = "", dotenv: str = "", **environ: str) -> Loaded:
        (home / "config.yaml").write_text(dedent(yaml), "utf-8")
        (home / ".env").write_text(dedent(dotenv), "utf-8")
        return load(home, environ)

    return read


@pytest.fixture
def refused(loaded: Callable[..., Loaded]) -> Callable[..., BadConfig]:
    def read(yaml: str = "", dotenv: str = "", **environ: str) -> BadConfig:
        with pytest.raises(BadConfig) as caught:
            loaded(yaml, dotenv, **environ)
        return caught.value

    return read


@pytest.fixture
def only_problem(refused: Callable[..., BadConfig]) -> Callable[..., Problem]:
    def read(yaml: str = "", dotenv: str = "", **environ: str) -> Problem:
        (problem,) = refused(yaml, dotenv, **environ).problems
        return problem

    return read
