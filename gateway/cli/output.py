"""What commands of the shell print, and every error as one sentence and an exit code.

Commands as they can be copied; short texts without the control characters of what came from outside; what is wrong with a configuration, as a list.
"""

import errno
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit, NoArgsIsHelpError

from gateway.config.problems import BadConfig, Problem
from gateway.home import BadHome, resolve_home, shown
from gateway.texts import CONTROL, clean, counted
from sessions.errors import StateError

HOME = "gateway.home"
"""The key under which click keeps the home of the command at work."""


def program() -> str:
    """Returns how this shell calls us, for this home: `hermes` if it finds that, else the path of the script; with `--home` where another home
    would be taken without it.
    """
    script = Path(sys.argv[0])
    called = "hermes"
    if script.name == "hermes" and shutil.which("hermes") is None:
        # In a checkout the script is `.venv/bin/hermes`; from elsewhere the whole path is easier to type than many `..`.
        near = os.path.relpath(script)
        called = str(script) if near.startswith("..") else near
    context = click.get_current_context(silent=True)
    home = context.meta.get(HOME) if context is not None else None
    if home is None or _usual_home() == home:
        return called
    return f"{called} --home {as_typed(home)}"


def as_typed(path: Path) -> str:
    """Returns the path as a shell takes it, short where that needs no quotes."""
    return short if _PLAIN_PATH.fullmatch(short := shown(path)) else shlex.quote(str(path))


_PLAIN_PATH = re.compile(r"(~/)?[\w/.,+@-]+")


def _usual_home() -> Path | None:
    try:
        return resolve_home(None, os.environ)
    except BadHome:
        return None


def as_called_here(text: str) -> str:
    """Returns the text with each `hermes COMMAND` in it as this shell has to call it, so that it can be copied."""
    from gateway.cli.main import COMMANDS

    command = rf"(?<![\w/.-])hermes(?= (?:(?:{'|'.join(COMMANDS)})\b|-(?!-home)))|(?<=`)hermes(?=`)"
    return re.sub(command, lambda _: program(), text)


def tell(text: str, *, err: bool = False) -> None:
    """Prints a text of ours that names commands."""
    click.echo(as_called_here(text), err=err)


def as_json(data: Any) -> str:
    # JSON escapes some of them by itself.
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(data, indent=2, ensure_ascii=False))


CLOSING = "Nothing was changed; the running gateway keeps the last good configuration."
_GREY, _RED, _YELLOW, _BOLD, _PLAIN = "\033[2m", "\033[31m", "\033[33m", "\033[1m", "\033[0m"


def bad_config_as_text(bad: BadConfig, *, color: bool = False, closing: str = CLOSING) -> str:
    """Returns the list as a person reads it, and one closing line."""
    parts = [problem_as_text(problem, color=color) for problem in bad.problems]
    parts += [warning_as_text(warning, color=color) for warning in bad.warnings]
    red, plain = (_RED, _PLAIN) if color else ("", "")
    return "\n\n".join([*parts, f"{red}{counted(len(bad.problems), 'problem')}.{plain} {closing}"])


def warning_as_text(warning: Problem, *, color: bool = False) -> str:
    yellow, plain = (_YELLOW, _PLAIN) if color else ("", "")
    return f"{yellow}warning{plain}  {problem_as_text(warning, color=color)}"


def problem_as_text(problem: Problem, *, color: bool = False) -> str:
    """Returns the place, the words and, where it may be shown, the line of the file with a mark below it."""
    bold, grey, plain = (_BOLD, _GREY, _PLAIN) if color else ("", "", "")
    place = problem.place
    named = problem.path.replace(".", "__").upper() not in place.source  # the name of a variable says it
    subject = f"{problem.path}: {problem.said}" if named else problem.said
    lines = [f"{bold}{place}{plain}{' ' if place.line else ':'} {subject}"]
    if problem.excerpt:
        lines.append(f"{grey}{place.line:5} |{plain} {problem.excerpt}")
        lines.append(f"{grey}      |{plain} {' ' * (place.column - 1)}^ {as_called_here(problem.remedy)}")
    elif problem.remedy:
        lines.append(f"        {as_called_here(problem.remedy)}")
    return "\n".join(lines)


def report(problems: Iterable[Problem], warnings: Iterable[Problem]) -> dict[str, Any]:
    """Returns the same as data for programs."""
    found = [_as_data(problem) for problem in problems]
    return {"ok": not found, "problems": found, "warnings": [_as_data(warning) for warning in warnings]}


def _as_data(problem: Problem) -> dict[str, Any]:
    return {
        "file": problem.place.source,
        "line": problem.place.line or None,
        "column": problem.place.column or None,
        "key": problem.path,
        "problem": problem.said,
        "allowed": problem.hint,
        "suggestion": problem.suggestion,
    }


INTERRUPTED = 130


class Failed(click.ClickException):
    """Ends the command with exit code 1; the message goes to standard error as it is."""

    def show(self, file: object = None) -> None:  # noqa: ARG002  # click's own signature
        click.echo(clean(self.message), err=True)


class Wrong(Failed):
    """Wrong usage or configuration: exit code 2."""

    exit_code = 2


@contextmanager
def errors_as_messages() -> Generator[None]:
    """Turns errors into those that click ends with a sentence, or with nothing."""
    try:
        yield
    # click prints the help for it.
    except NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise _to_copy(_usage(error)) from error
    except Failed as failed:
        raise _to_copy(failed) from failed
    except (click.ClickException, Exit):
        raise
    except (KeyboardInterrupt, click.Abort):
        if sys.stderr.isatty():
            click.echo(err=True)  # below the ^C
        raise Exit(INTERRUPTED) from None
    except Exception as error:  # the edge where a traceback would reach a person
        # click ends silently for a broken pipe, as in `hermes sessions list | head`.
        if _is_broken_pipe(error) or os.environ.get("HERMES_DEBUG"):
            raise
        failed = _failed(error)
        # Its lines are those of the file, and its remedies are as they should be.
        raise failed if isinstance(error, BadConfig) else _to_copy(failed) from error


def _to_copy(failed: Failed) -> Failed:
    return type(failed)(as_called_here(failed.message))


def sentence(error: Exception) -> str:
    """Returns the error in one sentence, for a place that goes on afterwards."""
    return _failed(error).message.splitlines()[0]


_RANGE = re.compile(r"is not in the range (?:(\d+)<=)?x(?:<=(\d+))?")


def _in_words(found: re.Match[str]) -> str:
    least, most = (None if bound is None else f"{int(bound):,}" for bound in found.groups())
    if most is None:
        return f"is too small: {least} is the least"
    return f"is too large: {most} is the most" if least is None else f"is not between {least} and {most}"


def _usage(error: click.UsageError) -> Failed:
    command = error.ctx.command_path if error.ctx is not None else "hermes"
    said = _RANGE.sub(_in_words, error.format_message())
    if isinstance(error, click.NoSuchOption) and error.ctx is not None and error.ctx.command.name == "search":
        # Of -redis the error names -r alone.
        word = next((each for each in sys.argv[1:] if each.startswith(error.option_name)), error.option_name)
        said += f" To look for it, put -- in front: {error.ctx.command_path} -- {shlex.quote(word)}"
    return Wrong(f"{said if said.endswith(('.', '?')) else f'{said}.'} `{command} --help` shows what is possible.")


def _is_broken_pipe(error: Exception) -> bool:
    """Returns whether the reader of our output had enough; click ends without a word then."""
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _failed(error: Exception) -> Failed:
    match error:
        case StateError():
            return Wrong(str(error)) if error.exit_code == Wrong.exit_code else Failed(str(error))
        case BadConfig():
            return Wrong(bad_config_as_text(error, closing="Nothing was changed."))
        case BadHome():
            return Failed(str(error))
        case OSError(errno=errno.ENOSPC):
            return Failed(f"{error.filename or 'What this writes to'} has no room left. Make some, and try again.")
        case OSError(filename=str(path), strerror=str(why)):
            return Failed(f"{path}: {why.lower()}. Check that it is there, and that this user may use it.")
        case _:
            return Failed(
                f"This should not have happened: {_unexpected(error)}. With HERMES_DEBUG=1 the same command shows where."
            )


def _unexpected(error: Exception) -> str:
    """Returns one line, without secrets: behind it there may be a statement, or what somebody wrote."""
    from gateway.observe.redaction import redact

    return redact(f"{type(error).__name__}: {error}".splitlines()[0]).rstrip(": .")
