"""Commands that begin, find and resume conversations."""

from sqlalchemy import Connection

from gateway.commands.base import CommandContext, current, label, last_message
from gateway.texts import say
from gateway.texts.times import format_short_time
from sessions import runs, store
from sessions.records import EndReason, RunStatus, Session
from sessions.runs import farewells

LISTED = 8
MOST_UNDONE = 100


def new(conn: Connection, chat: CommandContext, _: str) -> str:
    session = current(conn, chat)
    if (session is None or not session.message_count) and runs.active(conn, chat.session_key) is None:
        return say("session.is_new" if _here(conn, chat) else "session.is_first")
    _end_run(conn, chat)
    if session is not None:
        store.end(conn, session.id, EndReason.USER, chat.now)
        # The farewell works on the ended session beside the new one, so nobody waits for it.
        if chat.opening.farewell:
            farewells.begin(conn, session, chat.now)
    return say("session.new")


def sessions(conn: Connection, chat: CommandContext, _: str) -> str:
    here = _here(conn, chat)
    if not here:
        return say("session.resume_none")
    # Numbered as /resume lists them, so the current one has no number.
    this = [f"{_line(conn, chat, session)} (this one)" for session in here if _is_current(chat, session)]
    return "\n".join([*this, *_numbered(conn, chat, _earlier(here, chat))])


def _earlier(here: list[Session], chat: CommandContext) -> list[Session]:
    return [session for session in here if not _is_current(chat, session)]


def _numbered(conn: Connection, chat: CommandContext, earlier: list[Session], *, with_words: bool = False) -> list[str]:
    return [
        f"{number}. {_line(conn, chat, session)}" + (f": {last_message(conn, session)}" if with_words else "")
        for number, session in enumerate(earlier[:LISTED], 1)
    ]


def _line(conn: Connection, chat: CommandContext, session: Session) -> str:
    return f"{label(conn, session)}, {format_short_time(_last(session), chat.now, chat.timezone)}"


def _last(session: Session) -> int:
    return session.last_user_at or session.started_at


def _here(conn: Connection, chat: CommandContext) -> list[Session]:
    """Returns the sessions of this place, newest first. In the terminal those without a message are left out."""
    if chat.of_source is None:
        return store.recent(conn, key=chat.session_key, limit=100)
    found = store.recent(conn, source=chat.of_source, limit=100)
    return [session for session in found if session.message_count]


def _is_current(chat: CommandContext, session: Session) -> bool:
    return session.session_key == chat.session_key and session.ended_at is None


def resume(conn: Connection, chat: CommandContext, wanted: str) -> str:
    """Finds the session by its number in the list, its id, a prefix of its id, or its title."""
    earlier = _earlier(_here(conn, chat), chat)
    if not earlier:
        return say("session.resume_none")
    if not wanted:
        return "\n".join([say("session.resume_choose"), *_numbered(conn, chat, earlier, with_words=True)])
    session = _chosen(conn, earlier, wanted)
    if session is None:
        return say("session.resume_unknown", wanted=wanted)
    _end_run(conn, chat)
    last = last_message(conn, session)
    back = store.reopen(conn, session, chat.now)
    chat.moved(back.session_key)
    return say(
        "session.resumed",
        title=label(conn, back),
        when=format_short_time(_last(session), chat.now, chat.timezone),
        last=last,
    )


def _chosen(conn: Connection, earlier: list[Session], wanted: str) -> Session | None:
    if wanted.isdecimal() and 0 < int(wanted) <= min(len(earlier), LISTED):
        return earlier[int(wanted) - 1]
    by_id = [session for session in earlier if session.id.startswith(wanted)]
    by_title = [session for session in earlier if label(conn, session).casefold().startswith(wanted.casefold())]
    return (by_id or by_title or [None])[0]


def title(conn: Connection, chat: CommandContext, text: str) -> str:
    if not text:
        return say("command.usage", usage="/title TEXT")
    session = runs.open_session(conn, chat.key, chat.opening, chat.now)
    return say("session.titled", title=store.rename(conn, session.id, text))


def undo(conn: Connection, chat: CommandContext, number: str) -> str:
    """Takes back the last exchange, or the last so many as there are."""
    if number and not (number.isdecimal() and 0 < int(number) <= MOST_UNDONE):
        return say("command.usage", usage="/undo or /undo 3")
    _end_run(conn, chat)  # it works on the exchange that is taken back
    session = current(conn, chat)
    wanted = int(number or 1)
    taken = 0
    while session is not None and taken < wanted and store.take_back(conn, session.id):
        taken += 1
    match taken:
        case 0:
            return say("run.nothing_to_undo")
        case 1:
            return say("run.undone")
        case _:
            return say("run.undone_many", count=taken)


def retry(conn: Connection, chat: CommandContext, _: str) -> str:
    """Answers the last message again. The command itself says nothing: the answer follows."""
    active = runs.active(conn, chat.session_key)
    session = current(conn, chat)
    if active and runs.wake(conn, active, chat.now):  # it sleeps while its model is away: try now
        return ""
    if (active and active.status is RunStatus.RUNNING) or session is None:
        return say("run.nothing_to_retry")
    if active:  # it waits for a person
        runs.stop(conn, active.id, chat.now)
    if not store.take_back(conn, session.id, keep_question=True):
        return say("run.nothing_to_retry")
    runs.start_again(conn, session, chat.opening, chat.route, chat.now)
    return ""


def _end_run(conn: Connection, chat: CommandContext) -> None:
    active = runs.active(conn, chat.session_key)
    if active is not None:
        runs.stop(conn, active.id, chat.now)
