"""Imports the conversations and notes of another program's home."""

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.base import operator
from gateway.cli.foreign import hermes_agent, nanobot, openclaw
from gateway.cli.foreign.contents import HomeContents, leaving_out
from gateway.cli.render import Progress
from gateway.texts import counted
from sessions import memory
from sessions.clock import now_ms
from sessions.db import Database
from sessions.errors import Invalid
from sessions.export import import_session
from sessions.keys import OWNER_NAMESPACE

READERS: Mapping[str, Callable[[Path], HomeContents]] = {
    hermes_agent.PROGRAM: hermes_agent.read,
    openclaw.PROGRAM: openclaw.read,
    nanobot.PROGRAM: nanobot.read,
}
_MOST_LEFT_OUT = 20
_HEAVY = shutil.ignore_patterns(
    "node_modules", ".venv", "venv", "*.sock", "*.lock", "__pycache__", ".git", "logs", "media", "cache"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    new: int
    known: int
    notes: int
    left_out: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield f"{counted(self.new, 'conversation')} taken, {self.known:,} here already; {counted(self.notes, 'note')} taken."
        if self.left_out:
            yield "Not taken:"
            yield from (f"  {each}" for each in self.left_out[:_MOST_LEFT_OUT])
        if len(self.left_out) > _MOST_LEFT_OUT:
            yield f"  and {len(self.left_out) - _MOST_LEFT_OUT} more"


def take(database: Database, program: str, folder: Path) -> Taken:
    """Imports a copy of the folder. A second time nothing changes. Raises Invalid for a folder of somebody else."""
    if not folder.is_dir():
        raise Invalid(f"{folder} is no folder. Name the home of {program}.")
    # SQLite writes beside a database that it only reads (-wal, -shm), so not even that happens in their folder.
    with _copy(folder) as (copied, links):
        try:
            found = READERS[program](copied)
        except Invalid as error:
            raise Invalid(str(error).replace(str(copied), str(folder))) from error
    found.left_out += [f"{link}: a link, which may lead anywhere" for link in links]
    new, known, notes = 0, 0, 0
    with Progress("Importing conversations") as progress:
        for number, conversation in enumerate(found.conversations, 1):
            with leaving_out(found, f"session {conversation.name}"):
                is_new = database.write_now(import_session, conversation.as_import(), operator())
                new, known = new + is_new, known + (not is_new)
            progress(number)
    for text in found.notes:
        notes += _note(database, text, found)
    return Taken(new=new, known=known, notes=notes, left_out=tuple(found.left_out))


@contextmanager
def _copy(folder: Path) -> Generator[tuple[Path, list[Path]]]:
    """Copies the folder: whatever reading does to the files, theirs stay as they are. Returns the copy, and the links, which are left out:
    reading one would read what it leads to, such as our own config.yaml.
    """
    links = list[Path]()

    def left_out(place: str, names: list[str]) -> set[str]:
        skipped = set(_HEAVY(place, names))
        paths = [Path(place) / name for name in names if name not in skipped]
        links.extend(path.relative_to(folder) for path in paths if path.is_symlink())
        return skipped | {path.name for path in paths if path.is_symlink() or not (path.is_file() or path.is_dir())}

    with tempfile.TemporaryDirectory(prefix="hermes-import-") as place:
        copied = Path(place) / "home"
        shutil.copytree(folder, copied, ignore=left_out)
        yield copied, links


def _note(database: Database, text: str, found: HomeContents) -> bool:
    known = {each.text for each in database.read_now(memory.open_notes, OWNER_NAMESPACE)}
    if " ".join(text.split()) in known:
        return False
    try:
        database.write_now(memory.note, OWNER_NAMESPACE, text, now_ms())
    except Invalid as error:
        found.left_out.append(f"a note ({text[:40]}…): {error}")
        return False
    return True
