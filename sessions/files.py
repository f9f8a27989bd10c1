"""Files that several processes share: locks that end with their process, atomic replacement, and names."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Generator, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, TextIO


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Holds a lock file while the block lasts. Waits for it. Raises OSError when the folder does not allow it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_locked(path: Path) -> Generator[BinaryIO]:
    """Opens the file for reading and writing, created if needed, with a lock on it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_still(descriptor, path):  # else it was replaced or removed while this waited
                yield file
                return


def is_still(descriptor: int, path: Path) -> bool:
    """Returns whether the open file has this path still."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Puts on the disk which names there are in the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def written_whole(path: Path) -> Generator[TextIO]:
    """Opens a private file that takes the place of `path` when it is complete. Raises OSError, and leaves the old one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp makes it 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
            # Renaming before the data is on disk could leave an empty file after a power cut.
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replace(path: Path, text: str) -> None:
    with written_whole(path) as file:
        file.write(text)


def folder_name(ns: str) -> str:
    """Returns a namespace as a readable folder name that cannot lead out of its parent. No two namespaces have the same."""
    safe = "".join(
        char if char.isascii() and (char.isalnum() or char in "-_.:@+") else f"%{ord(char):02X}" for char in ns
    )
    digest = blake2b(ns.encode(), digest_size=12).hexdigest()
    # File names end at 255 bytes; a shortened one gets a digest, so that two long namespaces stay apart.
    name = safe if len(safe) <= 200 else f"{safe[:160]}%{digest}"
    return name if name.strip(".") else f"%{digest}"


def numbered(path: Path) -> Iterator[Path]:
    """Yields the path, then with a number in its name: `plan (2).md` and so on. Ends after some thousand."""
    stem, dot, ending = path.name.rpartition(".")
    yield path
    for number in range(2, 10_000):
        yield path.with_name(f"{stem or ending} ({number}){dot}{ending if stem else ''}")
