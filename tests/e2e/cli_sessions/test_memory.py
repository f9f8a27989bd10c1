"""`hermes memory`: what was learned, and how it is removed without a trace."""

import json

import pytest
from click.testing import CliRunner

from gateway.cli.main import hermes
from sessions import memory
from sessions.db import open_database


@pytest.fixture
def notes(home):
    def run(*arguments):
        return CliRunner().invoke(hermes, ["memory", *arguments], env={"HERMES_HOME": str(home)}, prog_name="hermes")

    return run


def fill(conn):
    first = memory.note(conn, "agent:main", "Lives in Quetzaltenango", 1_750_000_000_000)
    memory.note(conn, "agent:main", "Lives in Oslo", 1_750_000_000_000, replaces=first.id, cause="a job")
    memory.note(conn, "agent:main:telegram:group:-1", "Meets on Fridays", 1_750_000_000_000, happened="2025-06-13")


@pytest.fixture
def learned(home):
    home.mkdir()
    database = open_database(home)
    database.write_now(fill)
    database.close()


def test_the_list_is_by_namespace_and_shows_what_was_before(notes, learned):
    assert notes("list").stdout == (
        "agent:main\n"
        "  2 2025-06-15 fact: Lives in Oslo, because a job (before: Lives in Quetzaltenango, 2025-06-15 – no longer true)\n"
        "\nagent:main:telegram:group:-1\n"
        "  3 2025-06-13 fact: Meets on Fridays\n"
        "\n`hermes memory forget N` removes one.\n"
    )
    one = json.loads(notes("list", "agent:main:discord:dm", "--json").stdout)
    assert [(note["id"], note["text"], note["before"]) for note in one] == [
        (2, "Lives in Oslo", "Lives in Quetzaltenango")
    ]
    assert notes("list", "agent:main").stdout.startswith("agent:main\n")
    assert len(json.loads(notes("list", "--json").stdout)) == 2


def test_a_forgotten_note_leaves_no_trace_in_any_file(notes, learned, home):
    def traces():
        return [path.name for path in home.rglob("*") if path.is_file() and b"quetzal" in path.read_bytes().lower()]

    assert traces()
    assert notes("forget", "2").stdout == "Removed note 2: Lives in Oslo\n"
    assert traces() == []
    assert [note["id"] for note in json.loads(notes("list", "--json").stdout)] == [3]


def test_where_there_is_nothing(notes, learned):
    assert notes("list", "agent:main:api:key:s").stdout == "No notes in agent:main:api:key:s.\n"
    for number in ("1", "9"):
        refused = notes("forget", number)
        assert (refused.exit_code, refused.stderr) == (
            1,
            f"There is no note {number}. `hermes memory list` shows them.\n",
        )
    wrong = notes("list", "nonsense")
    assert wrong.exit_code == 2
    assert "is no session key" in wrong.stderr


def test_looking_makes_no_home(notes, home):
    assert (notes("list").stdout, notes("list", "--json").stdout) == ("No notes yet.\n", "[]\n")
    assert notes("forget", "1").exit_code == 1
    assert not home.exists()
