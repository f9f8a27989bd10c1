"""`hermes sessions why` and `hermes config check --impact`: when conversations are reset, and by which line of the configuration."""

import contextlib
from dataclasses import asdict
from typing import Any

import click
from sqlalchemy import Connection

from gateway.cli import output
from gateway.cli.base import Cli
from gateway.cli.database_access import existing_database
from gateway.cli.output import Wrong
from gateway.config.reading import Loaded, load
from gateway.scheduler.reset_explanation import Explanation, due_now, explain
from gateway.texts import counted, format_duration, format_time, one_line
from sessions import store
from sessions.clock import iso, now_ms
from sessions.errors import NotFound
from sessions.keys import InvalidKey, SessionKey
from sessions.policy import ResetMode, due
from sessions.records import EndReason


def print_why(cli: Cli, session_key: str, *, as_json: bool) -> None:
    """Prints why the conversation of this key, or of this session's id, is reset. Raises Wrong for what is neither."""
    loaded, now = load(cli.home, cli.environ), now_ms()

    def explained(conn: Connection) -> tuple[Explanation, str]:
        key = session_key
        if ":" not in key:  # the id of a session, as the list shows it
            with contextlib.suppress(NotFound):
                key = store.resolve(conn, key).session_key
        found = explain(conn, key, loaded.config.session_reset.rules(), now)
        return found, "" if found.session is None else store.label(conn, found.session)

    with existing_database(cli) as database:
        if database is None:
            raise Wrong(f"Nothing is stored in {cli.home} yet.")
        try:
            found, title = database.read_now(explained)
        except InvalidKey as error:
            raise Wrong(f"{error}. `hermes sessions list --json` shows the keys.") from None
    if as_json:
        click.echo(output.as_json(_facts(found, loaded)))
    else:
        click.echo("\n".join(_lines(found, title, loaded, now)))


def _lines(found: Explanation, title: str, loaded: Loaded, now: int) -> list[str]:
    zone = found.policy.timezone
    opened = "no session is open here"
    if found.session is not None:
        opened = f"“{one_line(title, 60)}”, open since {format_time(found.session.started_at, zone)}"
    lines = [f"{one_line(found.session_key)}  {opened}", ""]
    rule = _where(found.rule, loaded)
    if found.is_never_reset:
        rule = f"resets are for chats, and no override names {SessionKey.parse(found.session_key).scope}"
    lines += _row("rule", f"{found.policy.in_words():<30}  {rule}")
    lines += _row("", *(f"not used: {_where(each, loaded)}, less specific" for each in _unused(found)))
    last = found.session.last_user_at if found.session else None
    if last is not None:
        who = f"{one_line(found.last_sender)}, " if found.last_sender else ""
        lines += _row("last word", f"{who}{format_time(last, zone)} ({format_duration((now - last) / 1000)} ago)")
    lines += _row("resets", _when(found, now))
    blockers = (
        ", ".join(found.held_off) or "nothing  (a run at work, a question and a background process would be waited for)"
    )
    lines += _row("waits for", blockers)
    later = f"; {counted(found.owed, 'earlier turn')} still to be given" if found.owed else ""
    lines += _row("before it", f"one quiet turn to save notes{later}")
    return lines


def _row(head: str, *texts: str) -> list[str]:
    return [f"  {head if index == 0 else '':<10}{text}" for index, text in enumerate(texts)]


def _unused(found: Explanation) -> list[int | None]:
    return [*found.passed_over, *([None] if found.rule is not None else [])]


def _where(rule: int | None, loaded: Loaded) -> str:
    """Returns the line of the rule, and what it is for."""
    if rule is None:
        return f"session_reset ({loaded.origin('session_reset')})"
    section = loaded.config.session_reset.overrides[rule]
    said = {"key": section.key, "platform": section.platform, "chat": section.chat}
    about = ", ".join(f"{name} {value}" for name, value in said.items() if value)
    return f"overrides[{rule}] ({loaded.origin(f'session_reset.overrides[{rule}]')}; {about})"


def _when(found: Explanation, now: int) -> str:
    if found.next_at is None:
        return "never" if found.policy.mode is ResetMode.NONE else "not before somebody has written"
    if found.reason is not None and found.next_at <= now:
        return f"as soon as what it waits for is over: it is due ({found.reason.value})"
    told = f"{format_time(found.next_at, found.policy.timezone)} {found.policy.timezone}"
    # A day begins whether or not somebody writes before.
    return (
        told
        if due(found.next_at - 1, found.policy, found.next_at) is EndReason.DAILY
        else f"{told}, unless somebody writes before"
    )


def _facts(found: Explanation, loaded: Loaded) -> dict[str, Any]:
    session = found.session
    rule = "session_reset" if found.rule is None else f"session_reset.overrides[{found.rule}]"
    rule = None if found.is_never_reset else rule
    return {
        "session_key": found.session_key,
        "session_id": session.id if session else None,
        "policy": asdict(found.policy),
        "rule": rule,
        "line": None if rule is None else loaded.origin(rule),
        "not_used": [
            "session_reset" if each is None else f"session_reset.overrides[{each}]" for each in _unused(found)
        ],
        "last_user_at": iso(session.last_user_at) if session and session.last_user_at is not None else None,
        "next_reset_at": iso(found.next_at) if found.next_at is not None else None,
        "due": found.reason,
        "held_off": list(found.held_off),
        "owed_farewells": found.owed,
    }


def impact_of(cli: Cli, loaded: Loaded) -> dict[str, int]:
    """Returns how many open sessions this configuration resets as soon as it is taken over, by platform."""
    with existing_database(cli) as database:
        return (
            {} if database is None else dict(database.read_now(due_now, loaded.config.session_reset.rules(), now_ms()))
        )


def print_impact(cli: Cli, loaded: Loaded) -> None:
    found = impact_of(cli, loaded)
    count = sum(found.values())
    by_scope = "" if not count else f": {', '.join(f'{scope} {number}' for scope, number in sorted(found.items()))}"
    verb = "starts" if count == 1 else "start"
    zone = loaded.config.session_reset.zone
    what = counted(count, "open session")
    click.echo(f"Impact: with this configuration {what} {verb} afresh at once ({zone}){by_scope}.")
