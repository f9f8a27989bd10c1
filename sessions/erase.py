"""Deletes sessions so that no word of them stays in any file of the home."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from sqlalchemy import Connection, select

from sessions import audit, memory, store, transcripts
from sessions.db import drop_copies
from sessions.db.engine import Database
from sessions.db.schema import messages
from sessions.files import replace
from sessions.records import Observation, Source
from sessions.search import message_index


def erase(
    home: Path,
    database: Database,
    session_ids: Sequence[str],
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    *,
    by: str,
    now: int,
) -> int:
    """Delete these sessions for good. Blocks. Each is one transaction; the index is cleaned in small steps, so that others can write. `by`: who
    wants it, for the audit.

    Raises Busy for one that is being worked on; what was deleted before it is cleaned up all the same.
    """
    deleted = 0
    try:
        for session_id in session_ids:
            said = database.write_now(_delete, session_id, by, now)
            # After the commit, which notes what is gone: a crash in between is made good at the next start.
            transcripts.remove(home, database, [session_id])
            forget_typed(home, said)
            deleted += 1
            progress(deleted, len(session_ids))
    finally:
        if deleted:
            # Copies from before an upgrade hold everything that was there then.
            drop_copies(home)
            _leave_no_trace(database)
    return deleted


def forget_note(home: Path, database: Database, number: int, *, by: str, now: int) -> Observation:
    """Removes the note of this number, of whatever namespace, so that no word of it stays in the home. Blocks. Raises NotFound."""
    note = database.write_now(_forget, number, by, now)
    drop_copies(home)
    _leave_no_trace(database)
    return note


def _forget(conn: Connection, number: int, by: str, now: int) -> Observation:
    note = memory.by_id(conn, number)
    audit.record(conn, now, by, "note.forgotten", f"note:{number}")
    memory.forget(conn, note.ns, number)
    return note


def _delete(conn: Connection, session_id: str, by: str, now: int) -> set[str]:
    """Deletes one session. Returns what may have been typed in the terminal: answers to questions are tool results."""
    said: set[str] = set()
    if store.get(conn, session_id).source == Source.CLI:
        texts = conn.scalars(select(messages.c.content).where(messages.c.session_id == session_id))
        said = {text for text in texts if text}
    store.delete_session(conn, session_id)
    audit.record(conn, now, by, "session.deleted", f"session:{session_id}")
    return said


def _leave_no_trace(database: Database) -> None:
    while database.write_now(message_index.erase_step):
        pass
    database.shrink()  # what is freed was overwritten already (secure_delete)
    database.checkpoint()


HISTORY = "history"


def forget_typed(home: Path, texts: Collection[str]) -> None:
    """Take out the entries that say the same as one of these texts. Raises OSError."""
    path = home / HISTORY
    try:
        written = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return
    gone = {text.strip() for text in texts}
    kept = "".join(_without(written, lambda said: said.strip() in gone))
    if kept != written:
        replace(path, kept)


def _without(written: str, gone: Callable[[str], bool]) -> Iterator[str]:
    """An entry is a comment with the time, then its lines, each behind a plus."""
    entry: list[str] = []
    for line in [*re.findall(r"[^\n]*\n|[^\n]+", written), ""]:
        if entry and entry[-1].startswith("+") and not line.startswith("+"):
            if not gone("".join(said[1:] for said in entry if said.startswith("+"))):
                yield "".join(entry)
            entry = []
        entry.append(line)
    yield "".join(entry)
