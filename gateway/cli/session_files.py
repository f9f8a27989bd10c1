"""Sessions out to a file and in from one."""

import codecs
import errno
import json
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import DataError

from gateway.cli.base import operator
from gateway.cli.output import Failed
from gateway.cli.render import Progress
from gateway.texts import one_line
from sessions import store
from sessions.db import Database
from sessions.errors import Invalid, NotFound
from sessions.export import ImportedSession, export_session, import_session, parse_lines
from sessions.files import written_whole
from sessions.keys import SessionKey
from sessions.messages import Attachment

_IN_MEMORY = 64 * 2**20


class Lines(Protocol):
    """Where an export goes."""

    def write(self, text: str, /) -> object: ...


@contextmanager
def destination(name: str) -> Generator[Lines]:
    """Opens where an export goes. Raises Failed where it cannot be written."""
    if name == "-":
        out = codecs.getwriter("utf-8")(sys.stdout.buffer)  # whatever the terminal has: an import reads UTF-8
        yield out
        sys.stdout.buffer.flush()
        return
    try:
        target = Path(name).resolve()
        # A file appears when it is complete. A pipe or device is written as it is.
        is_other = target.exists() and not target.is_file()
        with target.open("w", encoding="utf-8") if is_other else written_whole(target) as file:
            yield file
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        why = (error.strerror or str(error)).lower()
        raise Failed(f"{name} cannot be written: {why}. Choose another place.") from error


def write_sessions(database: Database, session_ids: list[str], file: Lines) -> int:
    """Writes one line for each session, one in memory at a time. What was deleted meanwhile is left out."""

    def export(conn: Connection, session_id: str) -> dict[str, Any]:
        return export_session(conn, store.get(conn, session_id).id)

    written = 0
    with Progress("Exporting sessions") as progress:
        for session_id in session_ids:
            with suppress(NotFound):
                found = database.read_now(export, session_id)
                file.write(json.dumps(found, ensure_ascii=False) + "\n")
                written += 1
            progress(written, len(session_ids))
    return written


@dataclass(slots=True, kw_only=True)
class Imported:
    new: int = 0
    known: int = 0
    line: int = 0  # the one that was read last

    def __str__(self) -> str:
        return f"{self.new:,} imported, {self.known:,} skipped because they are here already"


def read_sessions(database: Database, lines: Iterable[bytes], home: Path) -> Imported:
    """Imports each session in one transaction; of its files, those that lie in its workspace in this home. Raises Invalid for a file with a
    bad line, before anything of it is stored.
    """
    # A copy, because standard input comes only once.
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as copy:
        _check(lines, copy)
        copy.seek(0)
        done = Imported()
        with Progress("Importing sessions") as progress:
            for session in parse_lines(_decoded(copy, done)):
                _leave_out_files(session, home)
                try:
                    is_new = database.write_now(import_session, session, operator())
                except (ValueError, OverflowError, DataError) as error:
                    # Numbers and characters that JSON knows and a database does not.
                    why = one_line(str(error.orig if isinstance(error, DataError) else error), 200)
                    said = f"line {done.line} cannot be stored: {why}. What stands before it stays: {done}."
                    raise Invalid(said) from error
                if is_new:
                    done.new += 1
                else:
                    done.known += 1
                progress(done.new + done.known)
    return done


def _check(lines: Iterable[bytes], copy: IO[bytes]) -> None:
    """Copies the lines. Raises Invalid at the first bad one."""

    def copied() -> Iterator[bytes]:
        for line in lines:
            copy.write(line)
            yield line

    try:
        with Progress("Checking sessions") as progress:
            for number, _ in enumerate(parse_lines(_decoded(copied(), Imported())), 1):
                progress(number)
    except Invalid as error:
        said = str(error)
        raise Invalid(f"{said}{'' if said.endswith(('.', '?')) else '.'} Nothing was imported.") from error


def _decoded(lines: Iterable[bytes], done: Imported) -> Iterator[str]:
    for done.line, line in enumerate(lines, 1):
        try:
            # Editors on Windows put a byte order mark in front of the first line.
            yield line.decode("utf-8-sig" if done.line == 1 else "utf-8")
        except UnicodeDecodeError:
            raise Invalid(
                f"line {done.line} is not UTF-8: is this a file that `hermes sessions export` wrote?"
            ) from None


def _leave_out_files(session: ImportedSession, home: Path) -> None:
    """Marks the files of other places as gone: the model would be shown whatever a stranger's file names."""
    if not any(message.attachments for message in session.messages):
        return
    from sessions.files import folder_name

    own = (home / "workspace" / folder_name(SessionKey.parse(session.session_key).namespace)).resolve()
    for message in session.messages:
        files: list[Attachment] = []
        for file in message.attachments or ():
            is_here = bool(file.path) and Path(file.path).resolve().is_relative_to(own)
            path = file.path if is_here else ""
            files.append(replace(file, platform="", ref="", address="", url="", path=path, gone=not is_here))
        message.attachments = files or None
