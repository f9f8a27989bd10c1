"""`hermes` itself: what it offers, where its home is, and how it fails."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from gateway.cli.base import Later, LazyGroup
from gateway.cli.main import COMMANDS, Root, hermes
from gateway.cli.output import as_called_here, program
from gateway.home import BadHome
from sessions import store
from sessions.db import open_database
from sessions.errors import ForeignHome, NotFound
from sessions.keys import SessionKey
from tests.machine import until_it_waits

HERMES = str(Path(sys.executable).with_name("hermes"))
ID = "20250305_091523_a1b2c3d4"
Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def run(home: Path) -> Run:
    def run(*arguments: str, **environ: str | None) -> Result:
        environ = {"HERMES_HOME": str(home), "HERMES_DEBUG": None, **environ}
        return CliRunner().invoke(hermes, list(arguments), env=environ, prog_name="hermes")

    return run


def really(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The installed command, as a shell runs it."""
    return subprocess.run(
        [HERMES, *arguments], capture_output=True, text=True, timeout=30, env={**os.environ, **environ}
    )


# --- what there is -------------------------------------------------------------------------------------------------


def test_help_has_one_line_for_each_command(run):
    answer = run("--help")

    assert answer.exit_code == 0
    for name in hermes.list_commands(click.Context(hermes)):
        assert re.search(rf"^  {name} +\S", answer.stdout, re.MULTILINE)
        assert COMMANDS[name].help in " ".join(answer.stdout.split())


def test_a_command_that_is_misspelt_gets_a_guess(run):
    answer = run("sesions")

    assert answer.exit_code == 2
    assert "Did you mean 'sessions'?" in answer.stderr


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("what is the time?", "hermes -q 'what is the time?'"),
        ("status", "`hermes gateway status`"),
        ("search", "`hermes sessions search`"),
        ("logs", "journalctl -u hermes-gateway"),
    ],
)
def test_what_people_try_first_names_the_command_that_does_it(run, typed, hint):
    answer = run(typed)

    assert answer.exit_code == 2
    assert hint in answer.stderr


def test_completing_a_name_imports_no_command():
    code = "import sys; from gateway.cli.main import main; main()"
    environ = {**os.environ, "_HERMES_COMPLETE": "bash_complete", "COMP_WORDS": "hermes se", "COMP_CWORD": "1"}
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, timeout=30, env=environ
    )

    assert "plain,sessions" in ended.stdout.splitlines()
    assert "sqlalchemy" not in ended.stderr


@pytest.mark.parametrize("name", hermes.list_commands(click.Context(hermes)))
def test_the_overview_says_what_the_command_says_of_itself(name):
    command = hermes.get_command(click.Context(hermes), name)

    assert command is not None
    assert (command.help or "").startswith(COMMANDS[name].help)


def test_a_command_that_is_not_installed_is_not_offered(run):
    group = LazyGroup("x", later={"soon": Later("gateway.cli.no_such_module", "Later.")})

    assert group.list_commands(click.Context(group)) == []
    assert group.get_command(click.Context(group), "soon") is None
    assert run("no-such-command").exit_code == 2


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_version(arguments):
    answer = really(*arguments)

    assert answer.returncode == 0
    lines = (
        r"hermes 0\.1\.0\nPython 3\.\d+\.\d+\S*, SQLite 3\.\d+\.\d+\nCommit (\w{7,}|not known)\nExtras discord, \w.*\n"
    )
    assert re.fullmatch(lines, answer.stdout)


def test_the_licences_of_everything_that_it_needs(run):
    lines = run("version", "--licences").output.splitlines()
    found = {name: licence for name, _, licence in (line.split(maxsplit=2) for line in lines)}
    assert {"hermes-gateway", "openai", "psycopg-binary", "python-telegram-bot"} <= set(found)
    assert "pytest" not in found
    assert found["hermes-gateway"] == "MIT"
    assert all(found.values())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(run, shell):
    answer = run("completion", shell)

    assert answer.exit_code == 0
    assert f"_HERMES_COMPLETE={shell}_complete" in answer.stdout


def test_the_completion_knows_the_commands():
    answer = really(_HERMES_COMPLETE="bash_complete", COMP_WORDS="hermes sessions pru", COMP_CWORD="2")

    assert answer.stdout == "plain,prune\n"


def test_ids_and_keys_are_completed(home):
    home.mkdir(mode=0o700)
    with contextlib.closing(open_database(home)) as database:
        database.write_now(store.start, SessionKey.parse("agent:main:telegram:dm"), 0, source="telegram", session_id=ID)
    for typed, expected in (
        ("sessions show 2025", ID),
        ("sessions why agent", "agent:main:telegram:dm"),
        ("config set session_reset.idle", "session_reset.idle_minutes"),
    ):
        at = str(len(typed.split()))
        answer = really(
            _HERMES_COMPLETE="bash_complete", COMP_WORDS=f"hermes {typed}", COMP_CWORD=at, HERMES_HOME=str(home)
        )
        assert answer.stdout == f"plain,{expected}\n"


def test_it_runs_as_a_module_too():
    answer = subprocess.run(
        [sys.executable, "-m", "gateway.cli.main", "version"], capture_output=True, text=True, timeout=30
    )

    assert answer.stdout.startswith("hermes ")


# --- the home ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--home", "{}", "config", "check"],
        ["config", "--home", "{}", "check"],
        ["config", "check", "--home", "{}"],
        ["config", "check", "--home={}"],
        ["--home", "/elsewhere", "config", "check", "--home", "{}"],
    ],
    ids=" ".join,
)
def test_the_home_is_named_anywhere(run, tmp_path, arguments):
    (tmp_path / "config.yaml").touch()

    answer = run(*(part.format(tmp_path) for part in arguments))

    assert answer.stdout == f"{tmp_path / 'config.yaml'} is good.\n"


def test_without_an_option_the_environment_names_the_home(run, home):
    assert str(home / "config.yaml") in run("config", "check").stdout


def test_without_both_it_is_below_the_users(run, tmp_path):
    answer = run("config", "check", HERMES_HOME=None, HOME=str(tmp_path))

    assert str(tmp_path / ".hermes" / "config.yaml") in answer.stdout


def test_every_command_takes_a_home():
    def without(command: click.Command, name: str) -> list[str]:
        below = command.commands if isinstance(command, click.Group) else {}
        missing = [] if any("--home" in parameter.opts for parameter in command.params) else [name]
        return [*missing, *(path for key, sub in below.items() for path in without(sub, f"{name} {key}"))]

    context = click.Context(hermes)
    commands = {name: hermes.get_command(context, name) for name in hermes.list_commands(context)}

    assert [path for name, command in commands.items() if command for path in without(command, name)] == []


# --- the chat ------------------------------------------------------------------------------------------------------


class PlainText(Root):
    """With commands that are there at once."""

    list_commands = click.Group.list_commands
    get_command = click.Group.get_command


@pytest.fixture
def with_chat() -> Root:
    """The same beginning, with a chat that tells what it was given."""
    root = PlainText("hermes", later={}, callback=hermes.callback, params=hermes.params, invoke_without_command=True)

    @root.command()
    @click.option("-q", "question")
    @click.option("-c", "--continue", "newest", is_flag=True)
    @click.option("-r", "--resume")
    def chat(question: str | None, newest: bool, resume: str | None) -> None:
        click.echo(f"{question} {newest} {resume}")

    return root


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], "None False None"),
        (["-c"], "None True None"),
        (["--continue"], "None True None"),
        (["-r", "2025"], "None False 2025"),
        (["--resume", "2025"], "None False 2025"),
        (["chat", "-q", "why"], "why False None"),
        (["-q", "why", "-c"], "why True None"),
    ],
)
def test_the_beginning_of_a_chat(with_chat, arguments, given):
    assert CliRunner().invoke(with_chat, arguments).stdout == f"{given}\n"


def test_an_option_of_the_chat_before_another_command_is_refused(run):
    answer = run("-c", "version")

    assert answer.exit_code == 2
    assert "--continue belongs to the chat: hermes chat --continue" in answer.stderr
    assert answer.stdout == ""


# --- failing -------------------------------------------------------------------------------------------------------


def failing_with(error: BaseException) -> Root:
    root = PlainText("hermes", later={})

    @root.command()
    def fail() -> None:
        raise error

    return root


UNEXPECTED = "This should not have happened:"


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (NotFound("There is no session x."), 1, "There is no session x."),
        (ForeignHome("Choose another home."), 2, "Choose another home."),
        (BadHome("Name a folder."), 1, "Name a folder."),
        (PermissionError(13, "Permission denied", "/a/b"), 1, "/a/b: permission denied. Check"),
        (KeyError("x"), 1, "This should not have happened: KeyError: 'x'. With HERMES_DEBUG=1"),
        (
            RuntimeError("with sk-abcdefghijklmnopqrstuvwx\n[SQL: his words]"),
            1,
            f"{UNEXPECTED} RuntimeError: with ****. With",
        ),
        (OSError(28, "No space left on device"), 1, "What this writes to has no room left."),
        (OSError(28, "No space left on device", "/a/b"), 1, "/a/b has no room left."),
        (ValueError(), 1, "This should not have happened: ValueError. With HERMES_DEBUG=1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_whatever_fails_is_told_in_one_line(error, exit_code, said):
    answer = CliRunner().invoke(failing_with(error), ["fail"], env={"HERMES_DEBUG": None})

    assert answer.exit_code == exit_code
    assert answer.stderr.startswith(said)
    assert answer.stderr.count("\n") == 1
    assert answer.stdout == ""


def test_debugging_shows_where_it_happened():
    answer = CliRunner().invoke(failing_with(KeyError("x")), ["fail"], env={"HERMES_DEBUG": "1"})

    assert isinstance(answer.exception, KeyError)


def test_interrupting_is_quiet():
    answer = CliRunner().invoke(failing_with(KeyboardInterrupt()), ["fail"])

    assert (answer.exit_code, answer.output) == (130, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nonsense"], "`hermes --help` shows what is possible."),
        (["config", "check", "--nonsense"], "`hermes config check --help` shows what is possible."),
        (["sessions", "list", "--limit", "0"], "Invalid value for '--limit'"),
        (["sessions", "list", "--limit", "99999999999999999999"], "is not between 1 and 1,000,000"),
        (["sessions", "prune", "--older-than", "99999999999999", "--yes"], "is not between 0 and 36,500"),
        (["outbox", "send", "99999999999999999999"], "is not between 1 and 9,"),
        (["sessions", "list", "--source", "icq"], "'telegram'"),
        (["sessions", "search", "NOT", "foo"], "NOT only takes away. Say first what to look for"),
        (["sessions", "search", "(NOT foo) OR bar"], "NOT only takes away."),
        (["sessions", "list", "what"], "(what). `hermes sessions list --help`"),
        (["sessions", "show"], "Missing argument 'ID'."),
        (["sessions", "import", "/no/such/file"], "No such file or directory. `hermes sessions import"),
    ],
)
def test_wrong_usage_is_told_in_one_line(run, arguments, said):
    answer = run(*arguments)

    assert answer.exit_code == 2
    assert said in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_an_interrupt_from_outside(tmp_path):
    waiting = subprocess.Popen(
        [HERMES, "--home", str(tmp_path), "sessions", "import", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert waiting.stdin is not None
    while not (tmp_path / "sessions").exists():  # made when the command is about to read
        assert waiting.poll() is None
    until_it_waits(waiting.pid)

    waiting.send_signal(signal.SIGINT)
    out, said = waiting.communicate(timeout=60)

    assert (waiting.returncode, out, said) == (130, b"", b"")


@pytest.mark.parametrize(("before", "ended"), [("SIG_DFL", -signal.SIGINT), ("SIG_IGN", 0)])
def test_an_interrupt_while_its_modules_are_loaded(before, ended):
    """A shell has it ignored for what runs in the background. Else Python sets its own handler, as here where `before` is the system's."""
    code = "import gateway.cli.start, os, signal; os.kill(os.getpid(), signal.SIGINT)"
    began = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, getattr(signal, before)),
    )
    assert (began.returncode, began.stderr) == (ended, b"")


def test_it_is_called_as_this_shell_calls_it(tmp_path, monkeypatch):
    script = tmp_path / "bin" / "hermes"
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert program() == "bin/hermes"
    assert as_called_here("`hermes doctor` tests it, hermes is well") == "`bin/hermes doctor` tests it, hermes is well"
    assert as_called_here("`hermes` talks, hermes -c goes on") == "`bin/hermes` talks, bin/hermes -c goes on"
    monkeypatch.chdir("/")
    assert program() == str(script).lstrip("/")
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "hermes"


def test_commands_that_are_named_go_to_the_home_that_was_named(run: Run, tmp_path: Path):
    other = tmp_path / "another home"
    named = f"hermes --home '{other}'"
    assert run("jobs", "list", "--home", str(other)).stdout.startswith(f"No jobs. {named} jobs add NAME")
    for arguments in (("gateway", "status"), ("dashboard",), ("config", "init")):
        said = run(*arguments, "--home", str(other)).output
        assert f"`{named} " in said, said
    assert f"{named} gateway run" in run("--home", str(other), "doctor").stdout
    # Without it: what the environment names is taken anyway.
    assert (
        "hermes jobs add" in run("jobs", "list", "--home", "unused", HERMES_HOME=str(Path("unused").absolute())).stdout
    )
    assert "hermes jobs add" in run("jobs", "list").stdout


def test_a_reader_that_had_enough(tmp_path):
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run([HERMES, "--help"], stdout=write, stderr=subprocess.PIPE, timeout=30)
    os.close(write)

    assert ended.stderr == b""
    assert ended.returncode != 0


def test_a_terminal_without_our_letters():
    answer = really("sessions", "list", "--home", "/nonexistent", PYTHONIOENCODING="ascii")

    assert answer.returncode == 0


def test_without_a_chat_the_beginning_says_so():
    answer = CliRunner().invoke(
        Root("hermes", later={}, callback=hermes.callback, params=hermes.params, invoke_without_command=True), []
    )

    assert answer.exit_code == 1
    assert answer.stderr == "This installation has no chat in the terminal. `hermes --help` shows what it has.\n"
