"""Prints what is wrong with a configuration, for a person or as JSON."""

from collections.abc import Iterable
from typing import Any

from gateway.cli.formatting import counted
from gateway.config.problems import BadConfig, Problem

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
        lines.append(f"{grey}      |{plain} {' ' * (place.column - 1)}^ {problem.remedy}")
    elif problem.remedy:
        lines.append(f"        {problem.remedy}")
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
