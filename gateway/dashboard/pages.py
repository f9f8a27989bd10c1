"""What each page shows: plain functions of a connection that return the values of its template."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from adapters.registry import title_of
from gateway.dashboard.server import Visit
from gateway.scheduler.reset_explanation import Explanation, explain, next_resets
from sessions import asks, jobs, memory, outbox, people, processes, runs, store, workers
from sessions.errors import Invalid
from sessions.keys import OWNER_NAMESPACE, InvalidKey, SessionKey
from sessions.records import Ask, Message, OutState, Run, RunKind, RunStatus, Session, Source
from sessions.runs import farewells
from sessions.search import message_index
from sessions.workers import WorkerRow, WorkerState

Values = Mapping[str, Any]
RUNS_SHOWN = 100
SESSIONS_SHOWN = 50
MESSAGES_SHOWN = 200
QUESTIONS_SHOWN = 50
TIMES_SHOWN = 30
JOBS_SHOWN = 100
_WELL = frozenset({"connected", "available"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardPage:
    """`live`: the blocks of the template that an open page keeps up to date."""

    path: str
    template: str
    live: Sequence[str]
    read: Callable[[Connection, Visit], Values]

    def values(self, conn: Connection, visit: Visit) -> Values:
        """Returns everything that the template needs."""
        common = {
            "visit": visit,
            "now": visit.app.clock(),
            "timezone": visit.app.timezone,
            "live": self.live,
            "once": secrets.token_hex(12),  # makes a form that is sent twice one message
        }
        return {**common, **self.read(conn, visit)}


PAGES: list[DashboardPage] = []
Read = Callable[[Connection, Visit], Values]


def page(path: str, template: str, *live: str) -> Callable[[Read], Read]:
    """Declares the function below as what this page shows."""

    def declare(read: Read) -> Read:
        PAGES.append(DashboardPage(path=path, template=template, live=live, read=read))
        return read

    return declare


# --- now ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """What waits for a person."""

    ask: Ask
    run: Run
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What fails, and what to do. `where`: the page on which it can be done."""

    what: str
    remedy: str = ""
    where: str = ""


@page("/ui/", "now.html", "waiting", "troubles", "working")
def now(conn: Connection, visit: Visit) -> Values:
    at_work = runs.latest(conn, RUNS_SHOWN, status=RunStatus.RUNNING)
    found = runs.open_questions(conn, QUESTIONS_SHOWN)
    return {
        "questions": [OpenQuestion(ask=ask, run=run, title=_title(conn, run.session_id)) for run, ask in found],
        "troubles": list(_troubles(conn, visit)),
        "at_work": [(run, _title(conn, run.session_id)) for run in at_work],
    }


def _title(conn: Connection, session_id: str) -> str:
    return store.label(conn, store.get(conn, session_id)) if store.exists(conn, session_id) else session_id


def _ready(conn: Connection, visit: Visit) -> list[WorkerRow]:
    return [row for row in workers.everyone(conn) if row.state_at(visit.app.clock()) is WorkerState.READY]


def _troubles(conn: Connection, visit: Visit) -> Iterator[Trouble]:
    said: set[str] = set()
    for worker in _ready(conn, visit):
        for name, part in worker.report.get("parts", {}).items():
            if part["state"] not in _WELL:
                what = f"{'The database' if name == 'database' else title_of(name)}: {part['words'] or part['state']}"
                yield Trouble(what=what, remedy="hermes doctor", where="/ui/platforms")
        for name, server in worker.report.get("mcp_servers", {}).items():
            if server["state"] == "down":
                yield Trouble(what=f"The MCP server {name} is down: {server['why']}")
        if refused := worker.report.get("config", {}).get("refused"):
            what = f"The changed configuration was refused: {'; '.join(refused['problems'][:3])}"
            yield Trouble(what=what, remedy="hermes config check")
        for alert in worker.report.get("alerts", ()):
            if alert not in said:
                said.add(alert)
                yield Trouble(what=alert)
    if dead := sum(count for (_, state), count in outbox.counts(conn).items() if state == OutState.DEAD):
        what = "One message was not delivered." if dead == 1 else f"{dead} messages were not delivered."
        yield Trouble(what=what, remedy="send them again, or drop them", where="/ui/platforms")
    for job in jobs.failing(conn, told=True):
        what = f"The job “{job.name}” has failed {job.failures} times in a row: {job.last_error or 'no reason given'}"
        yield Trouble(what=what, remedy="pause it, or run it again", where="/ui/time")
    if owed := len(farewells.owed(conn)):
        ended = "one ended session" if owed == 1 else f"{owed} ended sessions"
        yield Trouble(what=f"Notes are still to be made of {ended}, when the model can be reached.")
    if waiting := len(people.pending(conn, visit.app.clock())):
        who = "One person waits" if waiting == 1 else f"{waiting} people wait"
        yield Trouble(what=f"{who} to be let in.", remedy="enter their code", where="/ui/platforms")


# --- sessions -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    session: Session
    title: str
    last_words: str
    at: int


@page("/ui/sessions", "sessions.html", "list")
def sessions(conn: Connection, visit: Visit) -> Values:
    """Lists the sessions with the latest activity, or what a search finds. A mistake in the query is shown and finds nothing."""
    query, source, since = visit.asked("q"), visit.asked("source"), visit.asked("from")
    asked = {"q": query, "source": source, "since": since, "sources": list(Source), "problem": "", "hits": []}
    try:
        start = _day(since, visit) if since else None
        if query:
            hits = message_index.search(conn, query, source=source or None, limit=SESSIONS_SHOWN)
            found = [
                (hit, _title(conn, hit.session.id)) for hit in hits if not start or hit.message.created_at >= start
            ]
            return {**asked, "hits": found, "lines": []}
    except (Invalid, ValueError) as error:
        return {**asked, "problem": str(error), "lines": []}
    found = store.recent(conn, source=source or None, since=start, limit=SESSIONS_SHOWN)
    lines = [
        SessionLine(
            session=each,
            title=store.label(conn, each),
            last_words=store.last_words(conn, each),
            at=max(each.started_at, each.last_user_at or 0),
        )
        for each in found
        if each.message_count
    ]
    return {**asked, "lines": lines}


def _day(text: str, visit: Visit) -> int:
    try:
        return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(visit.app.timezone)).timestamp() * 1000)
    except ValueError:
        raise Invalid(f"{text!r} is no date, such as 2026-01-31.") from None


@page("/ui/sessions/{session_id}", "session.html", "heading", "transcript", "question", "growing", "state")
def session(conn: Connection, visit: Visit) -> Values:
    """Shows one session: its newest messages, or those before the one in the query."""
    found = store.resolve(conn, visit.path["session_id"])
    parts = store.chain(conn, found)
    before = visit.asked("before")
    rows = store.last_messages(
        conn, found.id, MESSAGES_SHOWN + 1, before=int(before) if before.isdecimal() and len(before) < 19 else None
    )
    run = runs.active(conn, found.session_key) if found.ended_at is None else None
    ask = asks.open_of(conn, run.id) if run is not None and run.status is RunStatus.WAITING else None
    key = _key(found)
    return {
        "session": found,
        "title": store.label(conn, found),
        "parts": parts,
        "older": rows[0].id if len(rows) > MESSAGES_SHOWN else None,
        "turns": list(_turns(conn, rows[-MESSAGES_SHOWN:])),
        "run": run,
        "question": None if run is None or ask is None else OpenQuestion(ask=ask, run=run, title=""),
        "following": run.id if run is not None else None,
        "processes": processes.running(conn, found.session_key),
        "may_write": key is not None and key.deployment is not None and found.ended_at is None,
        "why": None if key is None else explain(conn, found.session_key, visit.app.resets.rules, visit.app.clock()),
        "reset_rule": _rule_in_words(conn, found.session_key, visit) if key is not None else "",
    }


def _key(session: Session) -> SessionKey | None:
    """Returns the key of the session; None where an import has brought another text."""
    try:
        return SessionKey.parse(session.session_key)
    except InvalidKey:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptLine:
    """A message of a transcript. `begins`: the run that begins with it."""

    message: Message
    begins: Run | None
    calls: Sequence[tuple[str, str]] = ()


def _turns(conn: Connection, rows: Sequence[Message]) -> Iterator[TranscriptLine]:
    before: str | None = None
    for message in rows:
        begins = runs.find(conn, message.run_id) if message.run_id and message.run_id != before else None
        before = message.run_id or before
        yield TranscriptLine(message=message, begins=begins, calls=_calls(message))


def _calls(message: Message) -> list[tuple[str, str]]:
    """Returns name and arguments of the tool calls of a message; of an imported one whatever stands there."""
    found: list[tuple[str, str]] = []
    for call in message.tool_calls or ():
        function: Any = call.get("function")
        named = cast(dict[str, Any], function) if isinstance(function, dict) else {"name": "?", "arguments": call}
        found.append((str(named.get("name")), str(named.get("arguments", ""))))
    return found


def _rule_in_words(conn: Connection, session_key: str, visit: Visit) -> str:
    found: Explanation = explain(conn, session_key, visit.app.resets.rules, visit.app.clock())
    if found.is_never_reset:
        return "never: resets are for chats"
    origin = "session_reset" if found.rule is None else f"session_reset.overrides[{found.rule}]"
    return f"{found.policy.in_words()} ({visit.app.loaded.origin(origin)})"


# --- runs ---------------------------------------------------------------------------------------------------------------------


@page("/ui/runs", "runs.html", "list")
def list_runs(conn: Connection, visit: Visit) -> Values:
    wanted = visit.asked("status")
    status = RunStatus(wanted) if wanted in set(RunStatus) else None
    found = runs.latest(conn, RUNS_SHOWN, status=status)
    return {
        "runs": [(run, _title(conn, run.session_id)) for run in found],
        "status": status,
        "statuses": list(RunStatus),
    }


@page("/ui/runs/{run_id}", "run.html", "timeline", "question", "growing", "state")
def run(conn: Connection, visit: Visit) -> Values:
    """Shows the journal of one run as it grows."""
    found = runs.get(conn, visit.path["run_id"])
    rows = store.messages_of_run(conn, found.session_id, found.id, limit=MESSAGES_SHOWN * 5)
    asked = asks.of_run(conn, found.id)
    waiting = next((each for each in asked if each.answered_at is None), None)
    is_active = found.status in runs.ACTIVE
    # What happened in the run, each with its moment. None: it was taken up again after its process was gone.
    lines = [(each.created_at or 0, TranscriptLine(message=each, begins=None, calls=_calls(each))) for each in rows]
    return {
        "run": found,
        "title": _title(conn, found.session_id),
        "timeline": sorted([*lines, *((at, None) for at in found.restarts)], key=lambda line: line[0]),
        "asks": {each.tool_call_id: each for each in asked},
        "question": OpenQuestion(ask=waiting, run=found, title="") if waiting is not None and is_active else None,
        "following": found.id if is_active else None,
        "is_active": is_active,
        "may_steer": is_active and found.kind is RunKind.CHAT and found.status is RunStatus.RUNNING,
    }


# --- time ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One mark on the axis of time. `about`: the session key that it is about, or the name of a job."""

    at: int
    what: str
    about: str
    is_job: bool
    link: str = ""
    rule: str = ""
    detail: str = ""


@page("/ui/time", "time.html", "axis", "jobs")
def time(conn: Connection, visit: Visit) -> Values:
    now, rules = visit.app.clock(), visit.app.resets.rules
    past = [
        Moment(
            at=ended.ended_at or 0,
            what="reset, idle" if ended.end_reason == "idle" else "reset, a new day",
            about=ended.session_key,
            is_job=False,
            link=f"/ui/sessions/{ended.id}",
        )
        for ended in store.last_resets(conn, TIMES_SHOWN)
    ]
    for name, slot in jobs.latest_slots(conn, TIMES_SHOWN):
        how = {"made_up": "ran late", "missed": "missed", "manual": "run by hand"}.get(slot.outcome, "ran")
        link = f"/ui/runs/{slot.run_id}" if slot.run_id else ""
        detail = slot.error or ("" if slot.status in {"ok", "missed"} else slot.status)
        past.append(Moment(at=slot.slot, what=how, about=name, is_job=True, link=link, detail=detail))
    coming = [
        Moment(
            at=each.at,
            what="resets, unless somebody writes",
            about=each.session_key,
            is_job=False,
            rule=_rule_in_words(conn, each.session_key, visit),
        )
        for each in next_resets(conn, rules, now, limit=TIMES_SHOWN)
    ]
    coming += [
        Moment(at=job.next_run_at or now, what="runs", about=job.name, is_job=True, rule=job.schedule_display)
        for job in jobs.upcoming(conn, limit=TIMES_SHOWN)
    ]
    return {
        "past": sorted(past, key=lambda each: -each.at)[:TIMES_SHOWN],
        "coming": sorted(coming, key=lambda each: -each.at)[-TIMES_SHOWN:],
        "jobs": jobs.listing(conn, limit=JOBS_SHOWN),
        "jobs_shown": JOBS_SHOWN,
    }


# --- memory -------------------------------------------------------------------------------------------------------------------


@page("/ui/memory", "memory.html", "notes")
def show_memory(conn: Connection, visit: Visit) -> Values:
    ns = visit.asked("ns") or OWNER_NAMESPACE
    notes = memory.open_notes(conn, ns)
    state = memory.state(conn, ns)
    before = memory.replaced(conn, notes)
    return {
        "ns": ns,
        "namespaces": [OWNER_NAMESPACE, *(each for each in memory.namespaces(conn, 200) if each != OWNER_NAMESPACE)],
        "notes": [
            (note, before.get(note.supersedes or 0), _where_said(conn, note.session_id)) for note in reversed(notes)
        ],
        "digest": state.digest,
        "blocks": visit.app.last_prompts.get(ns, {}),
    }


def _where_said(conn: Connection, session_id: str | None) -> str | None:
    return session_id if session_id is not None and store.exists(conn, session_id) else None


# --- platforms ----------------------------------------------------------------------------------------------------------------


@page("/ui/platforms", "platforms.html", "states", "letters", "people", "findings")
def platforms(conn: Connection, visit: Visit) -> Values:
    ready = _ready(conn, visit)
    # Several workers report a platform; the one that holds its connection knows more than the others.
    parts: dict[str, Mapping[str, Any]] = {}
    for worker in reversed(ready):
        for name, part in worker.report.get("parts", {}).items():
            if name not in parts or part["state"] in _WELL:
                parts[name] = part
    waiting = outbox.waiting(conn)
    return {
        "parts": parts,
        "waiting": waiting,
        "letters": outbox.dead_letters(conn),
        "pending": people.pending(conn, visit.app.clock()),
        "people": people.everybody(conn),
        "workers": workers.everyone(conn),
        "findings": visit.dashboard.findings,
        "config": visit.app.reloads.part(),
        "config_file": visit.app.home / "config.yaml",
    }
