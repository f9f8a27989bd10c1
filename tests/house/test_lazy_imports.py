"""What the command line must not pay for: commands that only print_modules answer at once."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HEAVY = {"openai", "telegram", "discord", "slack_bolt", "slack_sdk", "aiohttp", "apscheduler", "prompt_toolkit", "rich"}
NOT_FOR_LISTS = {*HEAVY, "pydantic", "alembic", "ruamel", "structlog", "markdown_it"}
MODULES = 420
"""So many take about 0.2 seconds."""

_ASK = """
import json, sys
from gateway.cli.main import hermes
hermes.main(sys.argv[1:], prog_name="hermes", standalone_mode=False)
print(json.dumps(sorted(sys.modules)))
"""


def printed(code: str, *arguments: str) -> Any:
    """The last line that this program prints, as JSON."""
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(ended.stdout.splitlines()[-1])


@cache
def imported(home: Path, *arguments: str) -> set[str]:
    """The modules that a command has imported."""
    return set(printed(_ASK, "--home", str(home), *arguments))


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """With a database, so that the lists have to open it."""
    home = tmp_path_factory.mktemp("home")
    imported(home, "sessions", "import", "/dev/null")
    assert (home / "state.db").exists()
    return home


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], {*NOT_FOR_LISTS, "sqlalchemy", "yaml"}),
        (["version"], {*NOT_FOR_LISTS, "sqlalchemy", "yaml"}),
        (["sessions", "--help"], NOT_FOR_LISTS),
        (["sessions", "list"], NOT_FOR_LISTS),
        (["sessions", "search", "word"], NOT_FOR_LISTS),
        (["sessions", "stats"], NOT_FOR_LISTS),
        (["jobs", "list"], NOT_FOR_LISTS),
        (["config", "--help"], {*HEAVY, "sqlalchemy"}),
        (["setup", "--help"], HEAVY),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",  # a set has another order in each process
)
def test_looking_imports_little(home, arguments, unwanted):
    modules = imported(home, *arguments)

    assert not {name.partition(".")[0] for name in modules} & unwanted


@pytest.mark.parametrize("arguments", [["--help"], ["sessions", "list"]], ids=" ".join)
def test_looking_imports_few_modules(home, arguments):
    assert len(imported(home, *arguments)) < MODULES


def test_the_daemon_holds_nothing_in_memory_that_it_has_no_use_for():
    modules, sources = printed("""
import json, linecache, sys
import gateway.cli.gateway
print(json.dumps([sorted(sys.modules), [file for file in linecache.cache if file.endswith(".py")]]))
""")

    assert "structlog" in modules
    assert not {*modules} & {"rich", "pygments", "alembic", "sqlalchemy.dialects.postgresql", "telegram"}
    assert not sources, "for their docstrings"


def test_platforms_load_nothing_to_print_with():
    modules = printed("""
import json, sys, gateway.cli.gateway
from adapters import registry
for adapter in "telegram", "discord", "slack", "whatsapp":
    registry._load(registry.manifest(adapter).adapter)
print(json.dumps(sorted(sys.modules)))
""")

    assert not {name.partition(".")[0] for name in modules} & {"rich", "pygments"}


def test_a_daemon_holds_nothing_of_the_migrations_at_its_first_start_and_later(tmp_path):
    code = """
import json, sys
from gateway.app import open_app
from gateway.cli import gateway
from gateway.cli.main import hermes

async def print_modules(cli, loaded, *_, **__):
    async with open_app(cli.home, loaded):
        print(json.dumps(sorted(sys.modules)))

gateway._serve = print_modules
hermes.main(["--home", sys.argv[1], "gateway", "run"], standalone_mode=False)
"""
    (tmp_path / "config.yaml").write_text("model: {provider: practice}\n")
    for _ in ("first", "second"):
        modules = {name.partition(".")[0] for name in printed(code, str(tmp_path))}
        assert "sqlalchemy" in modules
        assert not modules & {"alembic", "mako", "pygments", "psycopg", "procrastinate"}


def test_the_client_library_is_loaded_before_the_first_message(tmp_path):
    (tmp_path / "config.yaml").write_text("model: {base_url: 'http://127.0.0.1:9/v1', name: m, api_key: k}\n")
    code = """
import asyncio, pathlib, sys
from gateway.app import open_app, running
from gateway.config.reading import load

async def main():
    home = pathlib.Path(sys.argv[1])
    async with open_app(home, load(home, {})) as app:
        assert "openai" not in sys.modules
        async with running(app), asyncio.timeout(30):
            while not {"openai", "anyio._backends._asyncio"} <= sys.modules.keys():
                await asyncio.sleep(0.01)

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=True)
