"""Keeps the folders of a home and the table `workspace_files` the same: what others have changed comes in, what was changed here goes out.

What both had when they were last the same is noted in `synced/` of the home; so a file that only one of them has is new there, or deleted
here, and never both. Everything here blocks.
"""

import contextlib
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from sessions import workspace_files as table
from sessions.errors import Invalid
from sessions.files import locked, numbered, replace
from sessions.workspace_files import OUTGOING, SKILLS, Guard, NewFile, State, StoredFile

P = ParamSpec("P")
T = TypeVar("T")

MAX_BYTES = 50_000_000
"""A larger file stays where it was made, unless somebody has sent it."""
MAX_FILES, MAX_TOTAL = 5_000, 1_000_000_000
"""What one namespace shares; what comes on top stays where it was made."""
EXCLUDED = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".cache", ".tox", ".mypy_cache", ".ruff_cache"})
"""Folders that a command makes anew wherever it is run."""
NOTES = "synced"
_PATH_BYTES = 1_000
_BATCH_BYTES = 16_000_000
_RACY_NS = 50_000_000
"""A file that was changed so shortly before it was read may be changed again without another time stamp."""
_OWNER, _SKILL = ".namespace", "SKILL.md"

Stamp = tuple[int, int, int, int]


class Access(Protocol):
    """The part of `Database` that is needed here."""

    def read_now(self, work: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def write_now(self, work: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file as it is here, or as it was when both sides were the same. `stamp`: by which it is seen that it has not changed since; None: it
    has to be read."""

    sha256: str
    size: int
    executable: bool
    stamp: Stamp | None = None

    def is_same(self, other: "_File | StoredFile | None") -> bool:
        return other is not None and self.sha256 == other.sha256 and bool(self.executable) == bool(other.executable)


@dataclass(slots=True, kw_only=True)
class _Known:
    """What both sides had when they were the same. `state`: of the table then; None: it has to be looked through."""

    state: State | None = None
    files: dict[str, _File] = field(default_factory=dict[str, _File])

    def moved(self, change: tuple[State, State]) -> None:
        """Notes a change of our own. When others had changed something before it, that is still to be looked through."""
        before, after = change
        self.state = after if before == self.state else None


class SharedFolders:
    """The folders of one home. Several processes of that home may work at once: each folder has a lock."""

    def __init__(self, home: Path, database: Access) -> None:
        self._home = home
        self._database = database

    @cached_property
    def _notes(self) -> Path:
        """The folder of the notes. By the name of the database: with another one, what is missing was not deleted."""
        return self._home / NOTES / self._database.write_now(table.name_of_database)

    def folder(self, ns: str) -> Path:
        return folder_of(self._home, ns)

    def known(self) -> list[str]:
        """Returns the namespaces of which this home has files."""
        return sorted(path.name.removesuffix(".json") for path in self._notes.glob("*.json"))

    def behind(self) -> list[str]:
        """Returns those of them that others have changed since this home has looked."""
        states = self._database.read_now(table.states)
        return [ns for ns in self.known() if _load(self._notes / f"{ns}.json").state != states.get(ns, (0, 0))]

    # --- both ways ---

    def sync(self, ns: str) -> list[str]:
        """Makes both sides the same. A file that was changed on both keeps what the table has; what it was here stays beside it, under a
        number. Returns what was not shared, because it is too much."""
        with self._locked(ns) as (folder, known):
            here = _scan(folder, known.files)
            state = self._database.read_now(table.state, ns)
            if state != known.state:
                self._take(ns, folder, known, here, state)
            return self._give(ns, folder, known, here, None)

    def give(self, ns: str, guard: Guard | None = None) -> list[str]:
        """Stores what was changed here, over whatever others have made of it meanwhile: the last one counts. Asks nothing where nothing was
        changed. Returns what was not shared."""
        with self._locked(ns) as (folder, known):
            return self._give(ns, folder, known, _scan(folder, known.files), guard)

    def _take(self, ns: str, folder: Path, known: _Known, here: dict[str, _File], state: State) -> None:
        there = self._database.read_now(table.listing, ns)
        is_whole = True
        for path, file in there.items():
            mine, base = here.get(path), known.files.get(path)
            if not _is_shared(path):
                continue
            if mine is not None and mine.is_same(file):
                known.files[path] = mine
                continue
            if base is not None and base.is_same(file):  # changed or deleted here: `_give` tells the others
                continue
            if (
                mine is not None
                and (base is None or not base.is_same(mine))
                and not self._set_aside(folder, path, here)
            ):
                is_whole = False
                continue
            if ns == SKILLS and PurePosixPath(path).name == _OWNER and mine is not None:
                # Nobody may read the words of one namespace under the name of another in between.
                skill = str(PurePosixPath(path).with_name(_SKILL))
                (folder / skill).unlink(missing_ok=True)
                here.pop(skill, None)
                known.files.pop(skill, None)
            brought = self._bring(folder, file, here.get(path))
            if brought is None:
                is_whole = False
            else:
                here[path] = known.files[path] = brought
        # In this order, so that a skill never loses the note of whose it is before its text.
        for path in sorted(set(known.files) - set(there), reverse=True):
            base = known.files.pop(path)
            if (mine := here.get(path)) is not None and mine.is_same(base) and _remove(folder, path, mine):
                del here[path]
        if not there:
            with contextlib.suppress(OSError):  # it is not empty, or not there
                folder.rmdir()
        known.state = state if is_whole else None

    def _set_aside(self, folder: Path, path: str, here: dict[str, _File]) -> bool:
        """Renames a file that was changed on both sides."""
        free = (place for place in numbered(folder / path) if not os.path.lexists(place))
        with contextlib.suppress(OSError, StopIteration):
            place = next(free)
            (folder / path).rename(place)
            here[place.relative_to(folder).as_posix()] = here.pop(path)
            return True
        return False

    def _bring(self, folder: Path, file: StoredFile, mine: _File | None) -> _File | None:
        """Writes a stored file. Returns None where that cannot be: something else has its place, or it has changed meanwhile."""
        target = folder / file.path
        try:
            # A link that a command has made may lead anywhere.
            if not target.parent.resolve().is_relative_to(folder.resolve()):
                return None
            data = self._database.read_now(table.data, file.id)
            if data is None:
                return None
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            mode = 0o700 if file.executable else 0o600
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode), "wb") as out:
                os.fchmod(out.fileno(), mode)
                out.write(data)
            os.utime(part, ns=(file.mtime * 1_000_000, file.mtime * 1_000_000))
            if _stamp(target) != (None if mine is None else mine.stamp or _stamp(target)):
                part.unlink()
                return None
            part.replace(target)
            return _File(sha256=file.sha256, size=file.size, executable=bool(file.executable), stamp=_stamp(target))
        except OSError:
            return None

    def _give(self, ns: str, folder: Path, known: _Known, here: Mapping[str, _File], guard: Guard | None) -> list[str]:
        changed = [path for path, mine in here.items() if not mine.is_same(known.files.get(path))]
        if ns == SKILLS:  # a skill travels whole: its text and whose it is belong together
            folders = {path.partition("/")[0] for path in changed}
            changed = [path for path in here if path.partition("/")[0] in folders]
        gone = {path: file.sha256 for path, file in known.files.items() if path not in here}
        left, count, total = list[str](), len(known.files), sum(file.size for file in known.files.values())
        batch, size = list[NewFile](), 0

        def store(some: list[NewFile], deleted: Mapping[str, str]) -> None:
            known.moved(self._database.write_now(table.change, ns, some, deleted, guard=guard))
            for path in deleted:
                del known.files[path]
            for file in some:
                stamp = stamps[file.path]
                known.files[file.path] = _File(
                    sha256=file.sha256, size=file.size, executable=file.executable, stamp=stamp
                )

        stamps: dict[str, Stamp | None] = {}
        for path in sorted(changed):
            is_new = path not in known.files
            too_much = is_new and (count >= MAX_FILES or total + here[path].size > MAX_TOTAL)
            if too_much or here[path].size > MAX_BYTES:
                left.append(path)
                continue
            read = _read(folder, path)
            if read is None:  # it went, or is being written
                continue
            file, stamps[path] = read
            count, total = count + is_new, total + file.size
            if batch and size + file.size > _BATCH_BYTES:
                store(batch, {})
                batch, size = [], 0
            batch.append(file)
            size += file.size
        if batch or gone:
            store(batch, gone)
        return left

    def stored(self) -> set[Path]:
        """Makes both sides the same, and returns the files of the home that the table has."""
        found = set[Path]()
        for ns in sorted({ns for ns, _ in everything(self._home)} - {OUTGOING}):
            self.sync(ns)
            with self._locked(ns) as (folder, known):
                found |= {folder / path for path in known.files}
        return found

    # --- single files ---

    def receive(self, ns: str, save: Callable[[], Path]) -> Path:
        """Stores a file that somebody has sent; `save` writes it into the folder. Returns its path, which has a number where another home has a
        file of that name."""
        with self._locked(ns) as (folder, known):
            saved = first = save()
            try:
                for place in numbered(first):
                    if place != saved:
                        if os.path.lexists(place):
                            continue
                        saved = saved.rename(place)
                    path = saved.relative_to(folder).as_posix()
                    read = _read(folder, path)
                    if read is None:
                        raise FileNotFoundError(f"{saved.name} has gone")
                    file, stamp = read
                    done = self._database.write_now(table.add, ns, file)
                    if done is not None:
                        known.moved(done)
                        known.files[path] = _File(sha256=file.sha256, size=file.size, executable=False, stamp=stamp)
                        return saved
                raise OSError(f"there are too many files called {first.name}")
            except BaseException:  # nobody is told of it, and whoever tries again saves it again
                saved.unlink(missing_ok=True)
                raise

    def discard(self, ns: str, places: Collection[Path]) -> None:
        """Deletes files here and everywhere."""
        with self._locked(ns) as (folder, known):
            paths = [place.relative_to(folder).as_posix() for place in places]
            for place in places:
                place.unlink(missing_ok=True)
            self._database.write_now(table.remove, ns, paths)
            for path in paths:
                known.files.pop(path, None)
            known.state = None

    def put(self, place: Path) -> None:
        """Stores a file that waits for being sent, once."""
        path = place.relative_to(self.folder(OUTGOING)).as_posix()
        if (file := read_file(self.folder(OUTGOING), path)) is not None:
            self._database.write_now(table.add, OUTGOING, file)

    def bring(self, places: Collection[Path]) -> None:
        """Brings those of these files that are stored and not here."""
        missing = dict[str, list[str]]()
        for place in places:
            if not place.exists() and place.is_relative_to(self._home):
                ns, path = self._place_of(place)
                if ns:
                    missing.setdefault(ns, []).append(path)
        for ns, paths in missing.items():
            with self._locked(ns) as (folder, known):
                for path, file in self._database.read_now(table.about, ns, paths).items():
                    if (brought := self._bring(folder, file, None)) is not None and ns != OUTGOING:
                        known.files[path] = brought

    def _place_of(self, place: Path) -> tuple[str, str]:
        match place.relative_to(self._home).parts:
            case ["workspace", ns, *below] if below:
                return ns, "/".join(below)
            case ["outgoing", *below]:
                return OUTGOING, "/".join(below)
            case _:
                return "", ""

    # --- what both sides had ---

    @contextlib.contextmanager
    def _locked(self, ns: str) -> Generator[tuple[Path, _Known]]:
        """Gives the folder, and what both sides had when they were the same; what the block makes of it is stored at its end."""
        self._notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self._notes / f"{ns}.lock"):
            folder, note = self.folder(ns), self._notes / f"{ns}.json"
            # A folder that is gone as a whole was deleted by nobody who works here: it is brought again.
            known = _load(note) if folder.is_dir() else _Known()
            before = _dump(known)
            try:
                yield folder, known
            finally:
                if (after := _dump(known)) != before:
                    replace(note, after)


def _load(note: Path) -> _Known:
    try:
        stored: Any = json.loads(note.read_text("utf-8"))
        files = {
            path: _File(sha256=digest, size=size, executable=executable, stamp=tuple(stamp) if stamp else None)
            for path, (digest, size, executable, stamp) in stored["files"].items()
        }
        return _Known(state=tuple(stored["state"]) if stored["state"] else None, files=files)
    except (OSError, ValueError, KeyError, TypeError):  # nothing is known: both sides are compared
        return _Known()


def _dump(known: _Known) -> str:
    files = {path: [file.sha256, file.size, file.executable, file.stamp] for path, file in known.files.items()}
    return json.dumps({"state": known.state, "files": files})


_SAME = "files.id"


def require_same_folder(home: Path, database: Access) -> None:
    """Raises Invalid when this home is not the folder that others on this database share, by a file in it."""
    proof = home / _SAME
    with contextlib.suppress(FileExistsError), proof.open("x") as file:
        file.write(secrets.token_hex(8))
    if database.write_now(table.name_of_folder, proof.read_text().strip()) != proof.read_text().strip():
        raise Invalid(
            f"files.store is folder, but {home} is not the folder that the other gateways on this database share: {_SAME} in it says so."
            " Let all of them have one shared folder as their home, or take files.store out of config.yaml: then the files are shared in the database."
        )


def folder_of(home: Path, ns: str) -> Path:
    return home / ns if ns in {SKILLS, OUTGOING} else home / "workspace" / ns


def local(home: Path, stored: str) -> Path:
    """Returns where a file lies in this home that another one may have stored: below the home it has the same place everywhere."""
    path = Path(stored)
    if ".." in path.parts:
        return path
    for depth, name in ((4, "workspace"), (3, OUTGOING)):
        if len(path.parts) > depth and path.parts[-depth] == name:
            return home.joinpath(*path.parts[-depth:])
    return path


def everything(home: Path) -> Iterator[tuple[str, str]]:
    """Yields the namespace and path of each file that a team shares. What was received counts whatever its size."""
    workspaces = home / "workspace"
    names = [place.name for place in sorted(workspaces.iterdir()) if place.is_dir()] if workspaces.is_dir() else []
    for ns in (*names, SKILLS, OUTGOING):
        for path, seen in _walk(folder_of(home, ns)):
            if seen.st_size <= MAX_BYTES or path.startswith("inbox/"):
                yield ns, path


# --- files ---------------------------------------------------------------------------------------------------------------------


def _is_shared(path: str) -> bool:
    """Returns whether a file of this path is shared, and may be written below a folder."""
    parts = PurePosixPath(path).parts
    name = parts[-1] if parts else ""
    if not name or path.startswith("/") or ".." in parts or (name.startswith(".") and name.endswith(".part")):
        return False
    try:
        return EXCLUDED.isdisjoint(parts) and len(path.encode()) <= _PATH_BYTES
    except UnicodeEncodeError:  # a name that is no UTF-8
        return False


def _scan(folder: Path, known: dict[str, _File]) -> dict[str, _File]:
    """Returns the ordinary files below the folder. Reads only those that have changed, and notes by what the others are known again."""
    found: dict[str, _File] = {}
    for path, seen in _walk(folder):
        base, stamp = known.get(path), _stamp_of(seen)
        if base is not None and base.stamp == stamp:
            found[path] = base
            continue
        # What is too much to be shared is not read either.
        unread = seen.st_size > MAX_BYTES or (base is None and len(found) >= MAX_FILES)
        digest = f"unread:{stamp}" if unread else _digest(folder / path)
        if digest is None:
            continue
        executable = bool(seen.st_mode & stat.S_IXUSR)
        stamp = None if _is_racy(seen) else stamp
        found[path] = _File(sha256=digest, size=seen.st_size, executable=executable, stamp=stamp)
        if found[path].is_same(base):
            known[path] = found[path]
    return found


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    folders = [""]
    while folders:
        below = folders.pop()
        with contextlib.suppress(OSError), os.scandir(root / below) as entries:
            for entry in entries:
                path = f"{below}{entry.name}"
                if not _is_shared(path):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        yield path, entry.stat(follow_symlinks=False)


def _digest(file: Path) -> str | None:
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return None


def read_file(folder: Path, path: str) -> NewFile | None:
    read = _read(folder, path)
    return None if read is None else read[0]


def _read(folder: Path, path: str) -> tuple[NewFile, Stamp | None] | None:
    try:
        with os.fdopen(os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            seen = os.fstat(opened.fileno())
            data = opened.read()
    except OSError:
        return None
    file = NewFile(
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        mtime=seen.st_mtime_ns // 1_000_000,
        executable=bool(seen.st_mode & stat.S_IXUSR),
        data=data,
    )
    return file, None if _is_racy(seen) else _stamp_of(seen)


def _stamp_of(seen: os.stat_result) -> Stamp:
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino


def _stamp(file: Path) -> Stamp | None:
    try:
        return _stamp_of(file.lstat())
    except OSError:
        return None


def _is_racy(seen: os.stat_result) -> bool:
    return time.time_ns() - max(seen.st_mtime_ns, seen.st_ctime_ns) < _RACY_NS


def _remove(folder: Path, path: str, mine: _File) -> bool:
    """Deletes a file that was deleted elsewhere, and the folders that are empty then. Returns False where it has changed meanwhile."""
    place = folder / path
    if mine.stamp is not None and _stamp(place) != mine.stamp:
        return False
    with contextlib.suppress(OSError):
        place.unlink(missing_ok=True)
        for parent in place.parents:
            if parent == folder:
                break
            parent.rmdir()
    return not os.path.lexists(place)
