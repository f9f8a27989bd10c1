"""Writes the transcripts, one JSONL file for each session, and `sessions.json`, the index of active sessions.

`<session id>.jsonl` has a line for each message. The files are copies; the database decides.
"""

import json
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import BigInteger, Connection, RowMapping, cast, delete, func, select

from sessions import codec, files
from sessions.clock import now_ms
from sessions.db.engine import Database
from sessions.db.schema import MESSAGE_OPEN, messages, meta, sessions
from sessions.db.sql import insert_or_ignore, param
from sessions.ids import is_session_id
from sessions.messages import Attachment
from sessions.records import Message, Source
from sessions.topics import Topic, Touch

_CHUNK = 500
_TAIL = 4_096
_SETTLED = (
    select(messages)
    .join(sessions, messages.c.session_id == sessions.c.id)
    .where(
        messages.c.session_id == param("session"),
        messages.c.id >= param("start"),
        messages.c.id <= sessions.c.settled_to,
    )
    .order_by(messages.c.id)
    .limit(_CHUNK)
)
_NOT_IN_INDEX = (Source.CLI, Source.API, Source.THREAD, Source.JOB)


def as_line(message: Message) -> dict[str, Any]:
    """Returns the fields of a message that are written; fields without a value are left out, except `content`."""
    line = {
        "id": message.id,
        "role": message.role,
        "content": message.content,
        "sender": message.sender,
        "tool_calls": message.tool_calls,
        "tool_call_id": message.tool_call_id,
        "tool_name": message.tool_name,
        "attachments": codec.plain(tuple[Attachment, ...], message.attachments) if message.attachments else None,
        "run_id": message.run_id,
        "created_at": message.created_at,
    }
    return {name: value for name, value in line.items() if value is not None or name == "content"}


def transcript_path(home: Path, session_id: str) -> Path:
    if not is_session_id(session_id):
        raise ValueError(f"{session_id!r} is no session id")
    return home / "sessions" / f"{session_id}.jsonl"


class Transcripts:
    """Writes the files. It notes what every commit has changed and writes it when `flush` is called. `flush`, `repair`, `catch_up` and `close`
    block; call them in a thread."""

    def __init__(self, home: Path, database: Database) -> None:
        self._home = home
        self._folder = home / "sessions"
        self._mark = self._folder / ".mirrored"
        self._database = database
        self._lock = threading.Lock()
        self._dirty: set[str] = set()
        self._rewritten: set[str] = set()
        self._gone: set[str] = set()
        self._index_due = False
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._stop = database.listen(self._on_commit, Topic.SESSION, Topic.REWRITTEN, Topic.GONE, Topic.KEY)

    def _on_commit(self, touched: frozenset[Touch]) -> None:
        with self._lock:
            for touch in touched:
                match touch.topic:
                    case Topic.SESSION:
                        self._dirty.add(touch.id)
                    case Topic.REWRITTEN:
                        self._rewritten.add(touch.id)
                    case Topic.GONE:
                        self._gone.add(touch.id)
                    case Topic.KEY:
                        self._index_due = True
                    case _:
                        pass

    @property
    def due(self) -> bool:
        return bool(self._dirty or self._rewritten or self._gone or self._index_due)

    def flush(self) -> None:
        """Writes all that has changed since the last call. When that fails (a full disk), raises the error and keeps the changes for the next call."""
        with self._lock:
            dirty, rewritten, gone, index = self._dirty, self._rewritten, self._gone, self._index_due
            self._dirty, self._rewritten, self._gone, self._index_due = set(), set(), set(), False
        try:
            if gone:
                remove(self._home, self._database, gone)
            for session_id in rewritten - gone:
                path = transcript_path(self._home, session_id)
                with files.open_locked(path):
                    self._replace(path, session_id)
            # Deleted ones are left out: a file written now would bring a deleted conversation back.
            for session_id in dirty - gone:
                self._append(session_id)
            if index:
                self._write_index()
        except Exception:
            with self._lock:
                # Added to what came in meanwhile.
                self._dirty |= dirty
                self._rewritten |= rewritten
                self._gone |= gone
                self._index_due |= index
            raise

    def repair(self) -> None:
        """Completes the files after a crash of any process, and deletes those of deleted sessions."""
        if gone := self._database.read_now(to_delete):
            remove(self._home, self._database, gone)
        self.catch_up()

    def close(self) -> None:
        """Writes what is due, also what other processes left, and stores up to where all is complete."""
        self.flush()
        self._stop()
        self.catch_up()

    def catch_up(self) -> None:
        """Writes what any process has left, and stores up to where all is complete. Reads only what is newer than the last such mark."""
        mark = self._read_mark()
        # Before the files are written: what is committed meanwhile stays newer than the mark.
        whole = self._database.read_now(_settled_everywhere)
        newer = select(messages.c.session_id).where(messages.c.id > mark).distinct()
        for session_id in self._database.read_now(lambda conn: list(conn.scalars(newer))):
            self._append(session_id)
        self._write_index()
        files.replace(self._mark, str(whole))

    def _read_mark(self) -> int:
        try:
            return int(self._mark.read_text())
        except (OSError, ValueError):
            return 0

    def _append(self, session_id: str) -> None:
        path = transcript_path(self._home, session_id)
        with files.open_locked(path) as file:
            reached = _last_written_id(file)
            settled = self._settled(session_id, reached)
            if reached and getattr(next(settled, None), "id", None) != reached:  # the last line was taken back
                self._replace(path, session_id)
                return
            for message in settled:
                file.write(_line(message))
            file.flush()
            if file.tell() == 0:
                path.unlink(missing_ok=True)

    def _replace(self, path: Path, session_id: str) -> None:
        lines = b"".join(_line(message) for message in self._settled(session_id, 0))
        if lines:
            files.replace(path, lines.decode())
        else:
            path.unlink(missing_ok=True)

    def _settled(self, session_id: str, start: int) -> Iterator[Message]:
        """Yields rows from `start` up to the first tool result that is still to come, in chunks, each in its own short read."""
        while True:
            rows = self._database.read_now(_rows, session_id, start)
            yield from (Message.from_row(row) for row in rows)
            if len(rows) < _CHUNK:
                return
            start = rows[-1]["id"] + 1

    def _write_index(self) -> None:
        with files.locked(self._folder / ".index.lock"):  # or an older state could replace a newer one
            active = self._database.read_now(_active)
            files.replace(self._folder / "sessions.json", json.dumps(active, ensure_ascii=False, indent=1) + "\n")


def _line(message: Message) -> bytes:
    return json.dumps(as_line(message), ensure_ascii=False).encode() + b"\n"


def _active(conn: Connection) -> dict[str, str]:
    query = select(sessions.c.session_key, sessions.c.id).where(
        sessions.c.ended_at.is_(None), sessions.c.source.not_in(_NOT_IN_INDEX)
    )
    return {row.session_key: row.id for row in conn.execute(query.order_by(sessions.c.session_key))}


def _settled_everywhere(conn: Connection) -> int:
    """Returns the newest id up to which nothing changes any more and nothing can still appear."""
    still_open = conn.scalar(select(func.min(messages.c.id)).where(MESSAGE_OPEN))
    newest = conn.scalar(select(func.max(messages.c.id))) or 0
    settled = newest if still_open is None else still_open - 1
    # On PostgreSQL an id can be given before a later one and be committed after it.
    return settled if conn.dialect.name == "sqlite" else max(settled - 1_000, 0)


def _rows(conn: Connection, session_id: str, start: int) -> Sequence[RowMapping]:
    return conn.execute(_SETTLED, {"session": session_id, "start": start}).mappings().all()


def _last_written_id(file: BinaryIO) -> int:
    """Returns the id in the last whole line, and removes a line that a crash cut off. Leaves the file at its end."""
    size = file.seek(0, os.SEEK_END)
    width = _TAIL
    while True:
        start = max(0, size - width)
        file.seek(start)
        tail = file.read(size - start)
        whole = tail[: tail.rfind(b"\n") + 1]
        lines = whole.splitlines()
        # The first line of a tail may be a part; with a second one the last is surely whole.
        if len(lines) > (start > 0) or start == 0:
            break
        width *= 8
    end = start + len(whole)
    if end < size:
        file.truncate(end)
    file.seek(end)
    return int(json.loads(lines[-1])["id"]) if lines else 0


def remove(home: Path, database: Database, session_ids: Collection[str]) -> None:
    """The transcripts of sessions that were deleted."""
    for session_id in session_ids:
        transcript_path(home, session_id).unlink(missing_ok=True)
    database.write_now(drop_deletion_notes, session_ids)


_DELETED = "erased:"
_KEPT_MS = 30 * 24 * 3_600_000
"""On PostgreSQL, where several homes may hold a transcript, and each finds the note at its next start."""


def note_deletion(conn: Connection, session_id: str) -> None:
    insert_or_ignore(conn, meta, {"key": f"{_DELETED}{session_id}", "value": str(now_ms())})


def to_delete(conn: Connection) -> list[str]:
    """The deleted sessions that were not imported again since."""
    keys = conn.scalars(select(meta.c.key).where(meta.c.key.startswith(_DELETED, autoescape=True)))
    found = {key.removeprefix(_DELETED) for key in keys}
    return sorted(found - set(conn.scalars(select(sessions.c.id).where(sessions.c.id.in_(found)))))


def drop_deletion_notes(conn: Connection, session_ids: Iterable[str]) -> None:
    """Removes the notes: the transcripts are deleted from this home."""
    if conn.dialect.name == "sqlite":
        keys = [f"{_DELETED}{session_id}" for session_id in session_ids]
        conn.execute(delete(meta).where(meta.c.key.in_(keys)))
        return
    old = cast(meta.c.value, BigInteger) < now_ms() - _KEPT_MS
    conn.execute(delete(meta).where(meta.c.key.startswith(_DELETED, autoescape=True), old))
