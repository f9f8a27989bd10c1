"""Stored sessions as text. What came from outside loses its control characters, so that no message can drive a terminal."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

import click

from gateway.texts import clean, counted, one_line
from sessions.records import Message, Role, Session
from sessions.search.message_index import Hit
from sessions.search.query import parse

RULE = "─" * 96
_MODEL = 30
_RESULT = 100
_BEFORE, _SNIPPET = 50, 160


# --- words ---------------------------------------------------------------------------------------------------------


def when(ms: int | None, form: str = "%Y-%m-%d %H:%M") -> str:
    """Formats a time in UTC, as in the ids. A time that no calendar knows can come with an import."""
    if ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "?"


# --- lists ---------------------------------------------------------------------------------------------------------


def table(sessions: Iterable[Session]) -> str:
    head = f"{'ID':<31}{'Source':<13}{'Model':<31}{'Messages':>8} Started"
    rows = [f"{_columns(each, each.started_at)}{'' if each.ended_at is None else ' (ended)'}" for each in sessions]
    return "\n".join([head, RULE, *rows])


def wide_table(sessions: Sequence[tuple[Session, str]]) -> str:
    """Formats every session with its label and its key on one line, however long."""
    head = f"{'ID':<25}{'Source':<10}{'Messages':>8}  {'Last activity':<17}{'Title':<41}Key"
    rows = [
        f"{each.id:<25}{each.source:<10}{each.message_count:>8}  {when(max(each.started_at, each.last_user_at or 0)):<17}"
        f"{one_line(title, 40):<41}{one_line(each.session_key)}{'' if each.ended_at is None else ' (ended)'}"
        for each, title in sessions
    ]
    return "\n".join([head, RULE, *rows])


def ended_table(sessions: Iterable[Session]) -> str:
    """Formats ended sessions with the date that decides whether they are pruned."""
    head = f"{'ID':<31}{'Source':<13}{'Model':<31}{'Messages':>8} Ended"
    return "\n".join([head, RULE, *(_columns(session, session.ended_at) for session in sessions)])


def titled_table(sessions: Sequence[tuple[Session, str]], width: int) -> str:
    """Formats every session with its label on one line, for a terminal of this width."""
    room = max(12, width - 54)
    head = f"{'ID':<25}{'Source':<9}{'Title':<{room}} {'Started'}"
    rows = [
        f"{session.id:<25}{session.source:<9}{one_line(title, room - 1):<{room}} {when(session.started_at)}"
        for session, title in sessions
    ]
    return "\n".join([head, "─" * min(width, 25 + 9 + room + 17), *rows])


def _columns(session: Session, at: int | None) -> str:
    model = one_line(session.model or "-", _MODEL)
    return f"{session.id:<31}{session.source:<13}{model:<31}{session.message_count:>8} {when(at)}"


def summary(parts: Sequence[Session], title: str) -> str:
    """Describes one conversation in one line: what somebody needs to know before it is deleted."""
    first, last = parts[0], parts[-1]
    latest = max([last.started_at, *(part.last_user_at or 0 for part in parts)])
    messages = counted(sum(part.message_count for part in parts), "message")
    return f"{first.id}{_after(last, title)}  {first.source}, {messages}, {when(first.started_at)} to {when(latest)}"


def _after(session: Session, title: str) -> str:
    """Returns the title as it stands after something else; nothing where a session of no words is called by its id."""
    return "" if title == session.id else f"  “{one_line(title)}”"


# --- hits ----------------------------------------------------------------------------------------------------------


def hits(found: Sequence[Hit], query: str, titles: Mapping[str, str]) -> str:
    """Formats hits by session, in the order of the best hit of each. `titles`: of the sessions, by their ids."""
    by_session: dict[str, list[Hit]] = {}
    for hit in found:
        by_session.setdefault(hit.session.id, []).append(hit)
    blocks: list[str] = []
    for some in by_session.values():
        session = some[0].session
        lines = [f"{click.style(session.id, bold=True)}  {session.source}{_after(session, titles[session.id])}"]
        for hit in some:
            place = f"{when(hit.message.created_at)}  {_who(hit.message)}"
            text = snippet(hit.message.content or "", query)
            marked = _pattern(query, text).sub(lambda match: click.style(match[0], bold=True, fg="yellow"), text)
            lines.append(f"  {click.style(place, dim=True)}  {marked}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def snippet(text: str, query: str) -> str:
    """Returns about a line and a half around the first word that was looked for."""
    line = one_line(text)
    found = _pattern(query, line).search(line)
    start = max(0, (found.start() if found else 0) - _BEFORE)
    if start:
        start = line.find(" ", start, start + _BEFORE) + 1 or start
    cut = line[start : start + _SNIPPET]
    return f"{'…' if start else ''}{cut}{'…' if start + _SNIPPET < len(line) else ''}"


def _pattern(query: str, text: str) -> re.Pattern[str]:
    """The words themselves, or, where none stands in the text, words of the same stem."""
    parsed = parse(query)
    words = [word for term in parsed.terms() for word in term.words] if parsed else []
    # The index searches by stems, so a hit need not hold the word as it was typed.
    exact = _any_of(rf"{_edge(word)}{re.escape(word)}{_edge(word)}" for word in words)
    if exact.search(text):
        return exact
    return _any_of(rf"{_edge(word)}{re.escape(word[: max(4, len(word) - 3)])}\w*" for word in words)


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(patterns) or r"(?!)", re.IGNORECASE)


def _edge(word: str) -> str:
    return r"\b" if word.isascii() else ""  # some scripts have no spaces between words


# --- one session ---------------------------------------------------------------------------------------------------


def conversation(session: Session, title: str, parts: Sequence[Session], messages: Sequence[Message]) -> str:
    """Formats the facts, then every message; a call with its result right below it."""
    place = [part.id for part in parts].index(session.id)
    try:
        settings = ", ".join(f"{name} {value}" for name, value in json.loads(session.model_config or "").items())
    except (ValueError, AttributeError):  # an import may have brought anything
        settings = session.model_config
    ended = f"{when(session.ended_at)} ({session.end_reason or 'no reason given'})"
    facts = {
        "Source": session.source if session.user_id is None else f"{session.source}, user {session.user_id}",
        "Key": session.session_key,
        "Agent": session.agent,
        "Model": session.model,
        "Settings": settings,
        "Prompt": session.system_prompt and one_line(session.system_prompt, _RESULT),
        "Started": when(session.started_at) + " UTC",
        "Last message": when(session.last_user_at) if session.last_user_at is not None else None,
        "Ended": ended if session.ended_at is not None else None,
        "Messages": f"{session.message_count:,}, {counted(session.tool_call_count, 'tool call')}",
        "Tokens": f"{session.input_tokens:,} in, {session.output_tokens:,} out",
        "Continues": parts[place - 1].id if place else None,
        "Continued in": parts[place + 1].id if place + 1 < len(parts) else None,
    }
    lines = [f"{click.style(session.id, bold=True)}{_after(session, title)}", ""]
    lines += [f"  {click.style(f'{name:<12}', dim=True)} {one_line(value)}" for name, value in facts.items() if value]
    text = "\n".join(lines)
    for message in messages:
        if said := _message(message):
            text += ("\n" if message.role is Role.TOOL else "\n\n") + said
    return text


def _message(message: Message) -> str:
    """Empty for one that says nothing."""
    stamp = click.style(when(message.created_at, "%Y-%m-%d %H:%M:%S"), dim=True)
    if message.role is Role.TOOL:
        return _dim(
            f"  ← {message.tool_name or 'result'}: {one_line(message.content or '', _RESULT)}{_tokens(message)}"
        )
    lines = [f"  {line}".rstrip() for line in clean(message.content or "").splitlines()]
    lines += [_dim(f"  + {one_line(file.name or file.kind)}") for file in message.attachments]
    lines += [_dim(f"  → {_call(call)}") for call in message.tool_calls or []]
    head = f"{stamp}  {click.style(_who(message), bold=True)}{_dim(_tokens(message))}"
    return "\n".join([head, *lines]) if lines else ""


def _tokens(message: Message) -> str:
    return f"  ({counted(message.token_count, 'token')})" if message.token_count else ""


def _call(call: dict[str, Any]) -> str:
    function: Any = call.get("function")
    if not isinstance(function, dict):
        return one_line(json.dumps(call, ensure_ascii=False), _RESULT)
    return one_line(f"{function.get('name')} {function.get('arguments')}", _RESULT)  # pyright: ignore[reportUnknownMemberType]  # as the model sent it


def _who(message: Message) -> str:
    return one_line(message.sender) if message.sender else str(message.role)


def _dim(text: str) -> str:
    return click.style(text, dim=True)


# --- the terminal --------------------------------------------------------------------------------------------------


def show(text: str) -> None:
    """Prints through the pager where somebody looks at it and it is longer than the screen."""
    import shutil

    context = click.get_current_context(silent=True)
    watched = sys.stdout.isatty() and sys.stdin.isatty()
    if watched and text.count("\n") + 2 > shutil.get_terminal_size().lines:
        click.echo_via_pager(text, color=context.color if context else None)
    else:
        click.echo(text)


class Progress:
    """One line on a terminal, for what takes more than a second; gone at the end."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._due = clock() + 1
        self._shown = False

    def __call__(self, done: int, total: int | None = None) -> None:
        if self._clock() < self._due or not sys.stderr.isatty():
            return
        self._due = self._clock() + 0.1
        self._shown = True
        click.echo(f"\r{self._what}: {done:,}{'' if total is None else f' of {total:,}'}\033[K", nl=False, err=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)
