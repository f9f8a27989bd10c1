"""All commands in chats, in the order of the help.

Each acts inside one transaction and returns its reply; empty when its effect is reply enough.
"""

import difflib
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from gateway.agent.memory.fold import sentences_of
from gateway.agent.models.practice import NAME as PRACTICE
from gateway.agent.tools.schedule import line_of
from gateway.commands.base import COMMANDS, ChatContext, Command, Parsed, command
from gateway.runs.replies import question_text
from gateway.texts import format_duration, say
from gateway.texts.quoting import as_code
from sessions import asks, audit, jobs, memory, processes, runs, spending, store, workers
from sessions.clock import as_time, iso
from sessions.db.sql import lock
from sessions.errors import Invalid, NotFound
from sessions.keys import OWNER_NAMESPACE
from sessions.policy import next_reset
from sessions.records import AskKind, EndReason, Observation, RunStatus, Session, Source
from sessions.runs import farewells
from sessions.search.query import stems
from sessions.workers import WorkerState

LISTED = 8
MOST_UNDONE = 100
LISTED_JOBS = 20
LISTED_NOTES = 50
LONGEST_QUOTE = 120
_DIGITS = 18


@command("new", "start afresh; the old conversation is kept", for_allowed=True, begins=True, aliases=("reset",))
def new(conn: Connection, chat: ChatContext, _: str) -> str:
    session = _current(conn, chat)
    if (session is None or not session.message_count) and runs.active(conn, chat.session_key) is None:
        return say("session.is_new" if _sessions_here(conn, chat) else "session.is_first")
    _end_run(conn, chat)
    if session is not None:
        store.end(conn, session.id, EndReason.USER, chat.now)
        # The farewell works on the ended session beside the new one, so nobody waits for it.
        if chat.opening.farewell:
            farewells.begin(conn, session, chat.now)
    return say("session.new")


@command("stop", "end what I am doing", for_allowed=True)
def stop(conn: Connection, chat: ChatContext, _: str) -> str:
    """Ends the run at work and what it, or an earlier one, runs in the background."""
    active = runs.active(conn, chat.session_key)
    is_stopped = active is not None and runs.stop(conn, active.id, chat.now)
    ended = [
        say("process.stopped", command=as_code(row.command)) for row in processes.stop(conn, chat.session_key, chat.now)
    ]
    if not is_stopped and not ended:
        return say("run.nothing_to_stop")
    return "\n".join([*([say("run.stopped")] if is_stopped else ()), *ended])


@command("status", "what I am doing, and in which conversation")
def status(conn: Connection, chat: ChatContext, _: str) -> str:
    in_background = [
        say(
            "process.runs",
            id=row.id,
            command=as_code(row.command),
            for_=format_duration((chat.now - row.started_at) / 1000),
        )
        for row in processes.running(conn, chat.session_key)
    ]
    return "\n".join([_state(conn, chat), *in_background, *_alerts(conn, chat)])


def _state(conn: Connection, chat: ChatContext) -> str:
    if (run := runs.active(conn, chat.session_key)) is not None:
        if run.status is RunStatus.WAITING:
            ask = asks.open_of(conn, run.id)
            return say("ask.waiting", question=question_text(ask, whole=True) if ask else "")
        if runs.is_asleep(run, chat.now):
            return say("status.asleep", when=chat.format_time(run.wake_at or chat.now))
        working = format_duration((chat.now - run.created_at) / 1000)
        open_calls = runs.open_calls(conn, run)
        what = say("status.tool", tool=open_calls[0].tool_name) if open_calls else say("status.thinking")
        return say("status.busy", for_=working, step=run.steps + 1, what=what)
    session = _current(conn, chat)
    if session is None:
        return say("status.fresh")
    facts = {
        "title": store.label(conn, session),
        "since": chat.format_time(session.started_at),
        "messages": _counted(session.message_count, "status.messages_one", "status.messages_other"),
    }
    policy, last = chat.opening.reset, session.last_user_at
    moment = next_reset(last, policy, chat.now) if policy is not None and last is not None else None
    if moment is None:
        return say("status.ready", **facts)
    return say("status.idle", **facts, reset=chat.format_time(moment) if moment > chat.now else say("status.with_next"))


def _alerts(conn: Connection, chat: ChatContext) -> Iterator[str]:
    """Yields the alerts of the gateway, for the owner only."""
    if chat.key.namespace != OWNER_NAMESPACE:
        return
    for row in workers.everyone(conn):
        # A worker that is gone cannot take its alerts back.
        if row.state_at(chat.now) is WorkerState.READY:
            yield from row.report.get("alerts", ())


# --- conversations ---


@command("resume", "go back to an earlier conversation", usage="[number or title]", for_allowed=True)
def resume(conn: Connection, chat: ChatContext, wanted: str) -> str:
    """Finds the session by its number in the list, its id, a prefix of its id, or its title."""
    earlier = [session for session in _sessions_here(conn, chat) if not _is_current(chat, session)]
    if not earlier:
        return say("session.resume_none")
    if not wanted:
        lines = [f"{line}: {store.last_words(conn, one)}" for line, one in _numbered(conn, chat, earlier)]
        return "\n".join([say("session.resume_choose"), *lines])
    if wanted.isdecimal() and 0 < int(wanted) <= min(len(earlier), LISTED):
        session = earlier[int(wanted) - 1]
    else:
        by_id = [one for one in earlier if one.id.startswith(wanted)]
        by_title = [one for one in earlier if store.label(conn, one).casefold().startswith(wanted.casefold())]
        session = (by_id or by_title or [None])[0]
    if session is None:
        return say("session.resume_unknown", wanted=wanted)
    _end_run(conn, chat)
    last = store.last_words(conn, session)
    back = store.reopen(conn, session, chat.now)
    chat.moved(back.session_key)
    return say("session.resumed", title=store.label(conn, back), when=chat.format_time(_last(session)), last=last)


@command("sessions", "the conversations of this chat")
def list_sessions(conn: Connection, chat: ChatContext, _: str) -> str:
    here = _sessions_here(conn, chat)
    if not here:
        return say("session.resume_none")
    # Numbered as /resume lists them, so the current one has no number.
    this = [f"{_line(conn, chat, session)} (this one)" for session in here if _is_current(chat, session)]
    earlier = [session for session in here if not _is_current(chat, session)]
    return "\n".join([*this, *(line for line, _ in _numbered(conn, chat, earlier))])


def _numbered(conn: Connection, chat: ChatContext, earlier: list[Session]) -> list[tuple[str, Session]]:
    return [(f"{n}. {_line(conn, chat, session)}", session) for n, session in enumerate(earlier[:LISTED], 1)]


def _line(conn: Connection, chat: ChatContext, session: Session) -> str:
    return f"{store.label(conn, session)}, {chat.format_time(_last(session))}"


def _last(session: Session) -> int:
    return session.last_user_at or session.started_at


def _sessions_here(conn: Connection, chat: ChatContext) -> list[Session]:
    """Returns the sessions of this place, newest first. In the terminal those without a message are left out."""
    if chat.of_source is None:
        return store.recent(conn, key=chat.session_key, limit=100)
    found = store.recent(conn, source=chat.of_source, limit=100)
    return [session for session in found if session.message_count]


def _is_current(chat: ChatContext, session: Session) -> bool:
    return session.session_key == chat.session_key and session.ended_at is None


def _current(conn: Connection, chat: ChatContext) -> Session | None:
    return store.active(conn, chat.session_key)


def _namespace(conn: Connection, chat: ChatContext) -> str:
    """Returns the namespace of this chat. Opens no session: looking at notes must not begin a conversation."""
    session = _current(conn, chat)
    return session.ns if session else chat.opening.ns or chat.key.namespace


def _end_run(conn: Connection, chat: ChatContext) -> None:
    active = runs.active(conn, chat.session_key)
    if active is not None:
        runs.stop(conn, active.id, chat.now)


@command("title", "name this conversation", usage="TEXT")
def set_title(conn: Connection, chat: ChatContext, text: str) -> str:
    if not text:
        return say("command.usage", usage="/title TEXT")
    session = runs.open_session(conn, chat.key, chat.opening, chat.now)
    return say("session.titled", title=store.rename(conn, session.id, text))


@command("retry", "answer the last message once more", for_allowed=True, ends=True)
def retry(conn: Connection, chat: ChatContext, _: str) -> str:
    """Answers the last message again. The command itself says nothing: the answer follows."""
    active = runs.active(conn, chat.session_key)
    session = _current(conn, chat)
    if active and runs.wake(conn, active, chat.now):  # it sleeps while its model is away: try now
        return ""
    if (active and active.status is RunStatus.RUNNING) or session is None:
        return say("run.nothing_to_retry")
    if (refusal := chat.day_limit(conn)) is not None:
        return refusal
    if active:  # it waits for a person
        runs.stop(conn, active.id, chat.now)
    if store.take_back(conn, session.id, keep_question=True) is None:
        return say("run.nothing_to_retry")
    runs.start_again(conn, session, chat.opening, chat.route, chat.now, who=chat.account.who)
    return ""


@command("undo", "take back the last exchange", usage="[N]", for_allowed=True)
def undo(conn: Connection, chat: ChatContext, number: str) -> str:
    """Takes back the last exchange, or the last so many as there are, with the notes that were made of them."""
    if number and not (number.isdecimal() and 0 < int(number) <= MOST_UNDONE):
        return say("command.usage", usage="/undo or /undo 3")
    _end_run(conn, chat)  # it works on the exchange that is taken back
    session = _current(conn, chat)
    wanted, taken, notes = int(number or 1), 0, list[Observation]()
    while session is not None and taken < wanted and (gone := store.take_back(conn, session.id)) is not None:
        taken, notes = taken + 1, [*gone, *notes]
    if not taken:
        return say("run.nothing_to_undo")
    said = say("run.undone") if taken == 1 else say("run.undone_many", count=taken)
    if not notes:
        return said
    made = say("run.undone_note") if len(notes) == 1 else say("run.undone_notes", count=len(notes))
    return "\n".join([f"{said} {made}", *(f"- {note.text}" for note in notes[:LISTED_NOTES])])


# --- notes and jobs ---


@command("memory", "what I have noted down here")
def list_notes(conn: Connection, chat: ChatContext, _: str) -> str:
    """Lists each note with its number, since when it is known, and from which words."""
    everything = memory.open_notes(conn, _namespace(conn, chat))
    if not everything:
        return say("memory.none")
    found = everything[-LISTED_NOTES:]
    replaced = memory.replaced(conn, found)
    lines: list[str] = []
    if older := len(everything) - len(found):
        lines.append(say("memory.more_one") if older == 1 else say("memory.more_other", count=older))
    for note in found:
        text = f"{note.text}, because {note.cause}" if note.cause else note.text
        facts = [*([say("memory.since", when=note.happened)] if note.happened else ()), _origin(conn, chat, note)]
        if (before := replaced.get(note.supersedes or 0)) is not None:
            facts.append(say("memory.before", text=before.text))
        lines.append(say("memory.line", number=note.id, text=text, since="; ".join(facts)))
    return "\n".join([*lines, "", say("memory.how_to_forget")])


def _origin(conn: Connection, chat: ChatContext, note: Observation) -> str:
    """Returns when and where it was said, and in which words, unless they are those of the note."""
    source = next(iter(store.messages_of(conn, note.src[-1:])), None)
    zone = ZoneInfo(chat.timezone)
    then, now = as_time(source.created_at if source else note.said_at, zone), as_time(chat.now, zone)
    day = f"{then.day} {then:%b}" if then.year == now.year else f"{then.day} {then:%b} {then.year}"
    sentences = sentences_of(source.content or "") if source else []
    quote = max(sentences, key=lambda sentence: len(stems(sentence) & stems(note.text)), default="")
    if quote.strip(" .!") == note.text.strip(" .!"):  # a note in the very words of its source needs no quote
        quote = ""
    if len(quote) > LONGEST_QUOTE:
        quote = quote[: LONGEST_QUOTE - 1].rstrip() + "…"
    session = store.get(conn, note.session_id) if note.session_id and store.exists(conn, note.session_id) else None
    if session is None or session.session_key == chat.session_key:
        return say("memory.said_here_as", day=day, words=quote) if quote else say("memory.said_here", day=day)
    match session.source:
        case Source.CLI:
            place = say("memory.in_terminal")
        case Source.API | Source.THREAD:
            place = say("memory.by_program")
        case Source.JOB:
            place = say("memory.in_job")
        case _:
            place = say("memory.on_platform", platform=chat.platform_title(session.source))
    if quote:
        return say("memory.said_there_as", day=day, place=place, words=quote)
    return say("memory.said_there", day=day, place=place)


@command("forget", "forget one of the notes", usage="N", for_allowed=True)
def forget(conn: Connection, chat: ChatContext, number: str) -> str:
    """Removes the note with this number everywhere, and says which it was."""
    digits = number.removeprefix("#").removeprefix("o")  # o12: as notes are called in prompts and search results
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _DIGITS:
        return say("command.usage", usage="/forget N")
    try:
        gone = memory.forget(conn, _namespace(conn, chat), int(digits))
        audit.record(conn, chat.now, chat.account.who, "note.forgotten", f"note:{gone.id}")
    except NotFound:
        return say("memory.no_such", number=digits)
    return say("memory.forgotten", number=gone.id, text=gone.text)


@command(
    "jobs", "what I do by myself, and when", usage="[pause|resume|run|delete ID]", for_allowed=True, shows_alone=True
)
def jobs_of_chat(conn: Connection, chat: ChatContext, argument: str) -> str:
    """Lists the jobs of this chat, or changes one (`pause ID` and the like)."""
    found = jobs.listing(conn, ns=_namespace(conn, chat))
    if not argument:
        lines = [f"- {line_of(job)}" for job in found[:LISTED_JOBS]]
        return "\n".join([*lines, "", say("job.how")]) if found else say("job.none")
    action, _, wanted = argument.partition(" ")
    wanted = wanted.strip()
    if action not in {"pause", "resume", "run", "delete"} or not wanted:
        return say("command.usage", usage="/jobs pause|resume|run|delete ID")
    # Among the jobs of this chat alone: the id of a job elsewhere is as unknown as one that does not exist.
    fitting = [each for each in found if each.id.startswith(wanted)] or [each for each in found if each.name == wanted]
    if len(fitting) > 1:
        return say("job.several", wanted=wanted, ids=", ".join(each.id for each in fitting))
    if not fitting:
        return say("job.no_such", wanted=wanted)
    (job,) = fitting
    try:
        jobs.act(conn, job.id, jobs.JobAction(action), chat.now, chat.account.who)
    except (Invalid, NotFound) as error:
        return str(error)
    return say(f"job.did_{action}", name=job.name)


# --- the model, its use, and what it asks ---


@command("model", "see or change the model", usage="[name]", for_allowed=True, shows_alone=True)
def model(conn: Connection, chat: ChatContext, name: str) -> str:
    if not name:
        session = _current(conn, chat)
        chosen = session.chosen_model if session is not None else None
        if chosen and chat.default_model == PRACTICE:
            return say("model.practice_now", name=chosen)
        return say("model.current", name=chosen or chat.default_model)
    session = runs.open_session(conn, chat.key, chat.opening, chat.now)
    # The default is stored as none, so that the session follows the configuration when that is changed.
    chosen = None if name in {"default", chat.default_model} else name
    store.choose_model(conn, session.id, chosen)
    if chosen and chat.default_model == PRACTICE:
        return say("model.practice", name=chosen)
    return say("model.changed", name=chosen or chat.default_model)


@command("usage", "what this conversation has used")
def usage(conn: Connection, chat: ChatContext, _: str) -> str:
    session, today = _current(conn, chat), _usage_today(conn, chat)
    if session is None:
        return "\n".join([say("status.fresh"), *today])
    said = say(
        "status.usage",
        messages=_counted(session.message_count, "status.messages_one", "status.messages_other"),
        calls=_counted(session.tool_call_count, "status.calls_one", "status.calls_other"),
        input=f"{session.input_tokens:,}",
        output=f"{session.output_tokens:,}",
    )
    return "\n".join([said, *today])


def _usage_today(conn: Connection, chat: ChatContext) -> Iterator[str]:
    """Yields what this person has used today, everywhere, and of how much."""
    who, limit = chat.account.who, chat.account.limit
    if not who:
        return
    used = spending.of_person(conn, iso(chat.now)[:10], who)
    of = {
        "tokens": f" of {limit.tokens:,}" if limit.tokens else "",
        "messages": f" of {limit.messages:,}" if limit.messages else "",
    }
    tokens, messages = f"{used.tokens:,}{of['tokens']}", f"{used.messages:,}{of['messages']}"
    yield say("status.usage_today", tokens=tokens, messages=messages)


def _counted(number: int, one: str, other: str) -> str:
    return say(one) if number == 1 else say(other, count=number)


@command("approve", "allow what I asked about", for_allowed=True, decides=True)
def approve(conn: Connection, chat: ChatContext, _: str) -> str:
    return _decide(conn, chat, "yes", approved=True)


@command("deny", "do not allow it", usage="[reason]", for_allowed=True, decides=True)
def deny(conn: Connection, chat: ChatContext, reason: str) -> str:
    return _decide(conn, chat, reason or "no", approved=False)


def _decide(conn: Connection, chat: ChatContext, answer: str, *, approved: bool) -> str:
    active = runs.active(conn, chat.session_key)
    ask = asks.open_of(conn, active.id) if active else None
    if active is None or ask is None or ask.kind is not AskKind.APPROVAL:
        return say("ask.nothing")
    who = chat.account.who or None
    runs.answer(conn, active.id, answer, chat.user, chat.now, ask_id=ask.id, approved=approved, who=who)
    return say("ask.approved_by" if approved else "ask.denied_by", who=chat.user, when=chat.format_time(chat.now))


@command("help", "this list")
def show_help(_: Connection, chat: ChatContext, __: str) -> str:
    lines = [f"/{each.name}{' ' + each.usage if each.usage else ''} – {each.about}" for each in COMMANDS]
    # The two helps name each other: `help` without the slash is the practice model's own.
    return "\n".join([*lines, *([say("command.practice_help")] if chat.default_model == PRACTICE else [])])


_BY_NAME = {name: each for each in COMMANDS for name in (each.name, *each.aliases)}

MENU = tuple(_BY_NAME[name] for name in ("new", "stop", "status", "resume", "retry", "memory", "jobs", "title", "help"))
"""Those that a platform's own menu offers."""


def find(name: str) -> Command | None:
    return _BY_NAME.get(name)


def execute(conn: Connection, chat: ChatContext, parsed: Parsed) -> str:
    """Runs the command and returns its reply. An unknown name gets a hint."""
    wanted = find(parsed.name)
    if wanted is None:
        return hint(parsed.name)
    lock(conn, chat.session_key)  # a message that arrives now must not see half of what the command does
    return wanted.function(conn, chat, parsed.argument)


def hint(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.6)
    if near:
        return say("command.unknown", command=f"/{name}", near=f"/{near[0]}")
    return say("command.unknown_far", command=f"/{name}")
