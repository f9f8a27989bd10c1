"""The files that the homes of a team share, as rows: the workspaces, the skills, and what waits for being sent. On PostgreSQL only.

A row has the namespace's folder in `workspace/` as its `ns`, or one of the two names below, which no namespace has.
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select

from sessions import meta
from sessions.db.engine import touch
from sessions.db.schema import workspace_files as table
from sessions.db.sql import lock, param
from sessions.topics import Topic

SKILLS = "skills"
OUTGOING = "outgoing"

State = tuple[int, int]
"""The number of files of a namespace, and the newest id. While both are the same, no file has changed: a change gets a new id, and a deletion lowers the
number."""
Guard = Callable[[Connection], None]
"""Called within a transaction that changes files; raises where the caller may not any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file without its contents. `mtime`: in milliseconds."""

    id: int = 0
    path: str
    sha256: str
    size: int
    mtime: int
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile(StoredFile):
    data: bytes


NAME = "files"
"""The key of `meta` for the name of this database, by which the homes note what they have of its files."""
FOLDER = "files_folder"
"""The same for the folder that all homes are, where files are not in the database."""

_STATE = select(func.count(), func.coalesce(func.max(table.c.id), 0)).where(table.c.ns == param("in_ns"))
_ABOUT = [column for column in table.c if column.name not in {"ns", "data"}]
_LISTING = select(*_ABOUT).where(table.c.ns == param("in_ns")).order_by(table.c.path)
_REMOVE = delete(table).where(table.c.ns == param("in_ns"), table.c.path == param("at"))
_REMOVE_AS_IT_WAS = _REMOVE.where(table.c.sha256 == param("was"))


def name_of_database(conn: Connection) -> str:
    return _kept(conn, NAME, secrets.token_hex(4))


def name_of_folder(conn: Connection, name: str) -> str:
    """Returns the name of the folder that all homes are; `name` where nobody has given one yet."""
    return _kept(conn, FOLDER, name)


def _kept(conn: Connection, key: str, new: str) -> str:
    if (name := meta.get(conn, key)) is None:
        lock(conn, key)
        if (name := meta.get(conn, key)) is None:
            meta.put(conn, key, name := new)
    return name


def state(conn: Connection, ns: str) -> State:
    count, newest = conn.execute(_STATE, {"in_ns": ns}).one()
    return int(count), int(newest)


def states(conn: Connection) -> dict[str, State]:
    """Returns the state of each namespace that has files."""
    query = select(table.c.ns, func.count(), func.max(table.c.id)).group_by(table.c.ns)
    return {ns: (int(count), int(newest)) for ns, count, newest in conn.execute(query)}


def listing(conn: Connection, ns: str) -> dict[str, StoredFile]:
    return {row["path"]: StoredFile(**row) for row in conn.execute(_LISTING, {"in_ns": ns}).mappings()}


def about(conn: Connection, ns: str, paths: Collection[str]) -> dict[str, StoredFile]:
    """Returns those of these files that there are."""
    query = select(*_ABOUT).where(table.c.ns == ns, table.c.path.in_(bindparam("some", expanding=True)))
    return {row["path"]: StoredFile(**row) for row in conn.execute(query, {"some": list(paths)}).mappings()}


def data(conn: Connection, file_id: int) -> bytes | None:
    """Returns the contents; None: the file was changed or deleted since its row was read."""
    found = conn.scalar(select(table.c.data).where(table.c.id == file_id))
    return None if found is None else bytes(found)


def digests(conn: Connection, *, anew: bool = False) -> dict[tuple[str, str], str]:
    """Returns the digest of each file by namespace and path. `anew`: made of the contents, by PostgreSQL."""
    digest = func.encode(func.sha256(table.c.data), "hex") if anew else table.c.sha256
    return {(ns, path): found for ns, path, found in conn.execute(select(table.c.ns, table.c.path, digest))}


def whole(conn: Connection, ns: str, path: str) -> NewFile:
    """Returns a file that is there, with its contents."""
    query = select(*_ABOUT, table.c.data).where(table.c.ns == ns, table.c.path == path)
    return NewFile(**conn.execute(query).mappings().one())


def change(
    conn: Connection, ns: str, put: Sequence[NewFile], gone: Mapping[str, str], *, guard: Guard | None = None
) -> tuple[State, State]:
    """Stores these files in place of what they were, and deletes those of `gone` that still have that digest. Returns the state before and after."""
    if guard is not None:
        guard(conn)
    lock(conn, f"files:{ns}")
    before = state(conn, ns)
    for path, digest in gone.items():
        conn.execute(_REMOVE_AS_IT_WAS, {"in_ns": ns, "at": path, "was": digest})
    for file in put:
        conn.execute(_REMOVE, {"in_ns": ns, "at": file.path})
        _insert(conn, ns, file)
    if gone or ns == SKILLS:
        touch(conn, Topic.FILES, ns)
    return before, state(conn, ns)


def add(conn: Connection, ns: str, file: NewFile) -> tuple[State, State] | None:
    """Stores a file that is new. Returns None when its path is taken, else the state before and after."""
    lock(conn, f"files:{ns}")
    before = state(conn, ns)
    if about(conn, ns, [file.path]):
        return None
    _insert(conn, ns, file)
    return before, state(conn, ns)


def _insert(conn: Connection, ns: str, file: NewFile) -> None:
    values = {
        "ns": ns,
        "path": file.path,
        "sha256": file.sha256,
        "size": file.size,
        "mtime": file.mtime,
        "executable": int(file.executable),
        "data": file.data,
    }
    conn.execute(insert(table), values)


def remove(conn: Connection, ns: str, paths: Collection[str]) -> None:
    for path in paths:
        conn.execute(_REMOVE, {"in_ns": ns, "at": path})
    touch(conn, Topic.FILES, ns)


def remove_all(conn: Connection, ns: str) -> None:
    """Deletes what a namespace has, from every home."""
    conn.execute(delete(table).where(table.c.ns == ns))
    touch(conn, Topic.FILES, ns)


def prune_received(conn: Connection, folder: str, before: int) -> int:
    """Deletes files of all workspaces that were received in this folder before this time. Returns how many."""
    old = and_(table.c.ns.not_in((SKILLS, OUTGOING)), table.c.path.startswith(f"{folder}/", autoescape=True))
    gone = conn.execute(delete(table).where(old, table.c.mtime < before).returning(table.c.ns)).scalars().all()
    for ns in set(gone):
        touch(conn, Topic.FILES, ns)
    return len(gone)


def prune_outgoing(conn: Connection, waiting: Collection[str], before: int) -> None:
    """Deletes copies older than `before` that no message waits for. `waiting`: the folders of those that wait."""
    rows = conn.execute(select(table.c.id, table.c.path).where(table.c.ns == OUTGOING, table.c.mtime < before))
    for row in rows.all():
        if row.path.partition("/")[0] not in waiting:
            conn.execute(delete(table).where(table.c.id == row.id))
