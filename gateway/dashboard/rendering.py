"""Turns what was read into HTML.

Every text is escaped and loses its control characters; only an agent's answer becomes markup, by a Markdown parser that knows no HTML and no
pictures.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, Template
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from adapters.registry import title_of
from gateway.texts import clean, counted, format_duration, format_time, one_line
from gateway.texts.quoting import visible
from sessions.clock import iso
from sessions.keys import ChatKind, InvalidKey, SessionKey
from sessions.records import Run, RunStatus, StopReason

NAV = (
    ("/ui/", "Now"),
    ("/ui/sessions", "Sessions"),
    ("/ui/runs", "Runs"),
    ("/ui/time", "Time"),
    ("/ui/memory", "Memory"),
    ("/ui/platforms", "Platforms"),
)
_KINDS = {ChatKind.DM: "direct messages", ChatKind.GROUP: "group", ChatKind.CHANNEL: "channel"}
_SCOPES = {"api": "API", "response": "API", "thread": "Thread", "cli": "Terminal", "job": "Job"}


def render(template: str, *, here: str, **values: object) -> str:
    """Returns a whole page. `here`: its path, which is marked in the navigation."""
    return environment().get_template(template).render(here=here, nav=NAV, **values)


def render_blocks(template: str, names: Sequence[str], values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the named blocks of a page, as they stand in it."""
    found: Template = environment().get_template(template)
    context = found.new_context(dict(values))
    return {name: "".join(found.blocks[name](context)) for name in names}


@lru_cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("gateway.dashboard"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_control_characters,
    )
    filters: dict[str, Any] = made.filters
    filters.update(
        {
            "one_line": one_line,
            "visible": visible,
            "markdown": markdown,
            "duration": duration,
            "counted": counted,
            "place": place,
            "state": run_state,
            "platform": title_of,
            "number": number,
            "as_ms": as_ms,
        }
    )
    shared: dict[str, Any] = made.globals
    shared.update({"ago": ago, "moment": moment})
    # As a global and not as an import: a block is also rendered without the rest of its page.
    shared["part"] = made.get_template("parts.html").module
    return made


def _without_control_characters(value: object) -> object:
    return value if isinstance(value, Markup) or not isinstance(value, str) else clean(value)


@lru_cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


def markdown(text: str | None) -> Markup:
    """Returns the text of an agent as HTML."""
    return Markup(_parser().render(clean(text or "")))  # noqa: S704  # the parser escapes whatever is not Markdown


def duration(ms: int) -> str:
    return format_duration(ms / 1000)


def number(number: int) -> str:
    return f"{number:,}"


def as_ms(text: str) -> int:
    """Returns a moment that a report has as ISO 8601."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def ago(ms: int | None, now: int, timezone: str) -> Markup:
    """Returns how long a moment is away from now, with the moment itself as a title."""
    if ms is None:
        return Markup("–")
    distance = format_duration(abs(now - ms) / 1000)
    said = "now" if abs(now - ms) < 1000 else f"{distance} ago" if ms < now else f"in {distance}"
    return _time(ms, said, f"{format_time(ms, timezone)} {timezone}")


def moment(ms: int | None, timezone: str) -> Markup:
    """Returns the moment, as people in this time zone write it."""
    return Markup("–") if ms is None else _time(ms, format_time(ms, timezone), timezone)


def _time(ms: int, said: str, title: str) -> Markup:
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso(ms), title, said)


def place(session_key: str) -> Markup:
    """Returns where the conversation of this key is, as a person says it."""
    with suppress(InvalidKey):
        key = SessionKey.parse(session_key)
        if key.kind is None:
            agent = "" if key.agent == "main" else f" of {key.agent}"
            name = f" {key.api_key}" if key.api_key else ""
            return Markup("{}{}{}").format(_SCOPES.get(key.scope, key.scope), name, agent)
        whose = [key.chat_id or "of the owner", *(["thread", key.thread_id] if key.thread_id else [])]
        return Markup("{}, {} <bdi>{}</bdi>").format(title_of(key.scope), _KINDS[key.kind], clean(" ".join(whose)))
    return escape(one_line(session_key))


def run_state(run: Run) -> str:
    """Returns how the run stands, in words."""
    match run.status:
        case RunStatus.RUNNING:
            return "waits for its model" if run.away_since is not None else "works"
        case RunStatus.WAITING:
            return "waits for a person"
        case RunStatus.ERROR:
            return "failed"
        case RunStatus.COMPLETED:
            ended = {StopReason.CANCELLED: "stopped", StopReason.BUDGET: "reached its limit"}
            return ended.get(run.stop_reason or StopReason.DONE, "done")
