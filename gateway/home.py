"""The folder in which everything is kept, `~/.hermes` or `HERMES_HOME`, and how its settings are written."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sessions.files import written_whole


class BadHome(Exception):
    """The home cannot be used. The message says why and what to do."""


UNIT_FOLDERS = tuple(Path(name) for name in ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"))
_HOME_OF_UNIT = re.compile(r'^Environment="?HERMES_HOME=([^"\n]+?)"?\s*$', re.MULTILINE)


def resolve_home(option: str | None, environ: Mapping[str, str]) -> Path:
    """Returns `--home`, else HERMES_HOME, else ~/.hermes, as an absolute path; for somebody who has no ~/.hermes but may read the home of
    the machine's one service, that one. Creates nothing. Raises BadHome where there is no home folder."""
    named = option or environ.get("HERMES_HOME")
    try:
        home = Path(named or "~/.hermes").expanduser().absolute()
    except RuntimeError:
        raise BadHome("This user has no home folder. Name one with --home DIR or HERMES_HOME.") from None
    if named or is_used(home) or (of_service := service_home()) is None:
        return home
    return of_service if os.access(of_service, os.R_OK | os.X_OK) else home


def service_home() -> Path | None:
    """Returns the home of the machine's service; None where there is no service, or several."""
    found: set[Path] = set()
    for folder in UNIT_FOLDERS:
        for unit in folder.glob("hermes-gateway*.service"):
            try:
                found |= {Path(home) for home in _HOME_OF_UNIT.findall(unit.read_text("utf-8", "replace"))}
            except OSError:
                continue
    return found.pop() if len(found) == 1 else None


def is_used(home: Path) -> bool:
    """Returns whether the folder holds a configuration or sessions."""
    return any((home / name).exists() for name in ("config.yaml", "state.db"))


def shown(path: Path) -> str:
    """Returns the path as a shell takes it, short: `~/.hermes` for what is below the home folder of this user."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)


def check_home(home: Path) -> None:
    """Raises BadHome when the home is a file, or below one. It may be missing: this is for commands that only read."""
    if any(place.exists() and not place.is_dir() for place in (home, *home.parents)):
        raise BadHome(f"{home} is a file, or below one. Name a folder with --home DIR or HERMES_HOME.")


def is_open(home: Path) -> bool:
    """Returns whether other users of this machine can read the home."""
    return home.is_dir() and bool(home.stat().st_mode & 0o077)


def prepare_home(home: Path) -> None:
    """Creates the home with mode 0700. An existing one is not changed. Raises BadHome."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Tried, because permissions alone do not say it: the file system may be read-only or full.
        probe = home / ".hermes-can-write"
        probe.touch(mode=0o600)
        probe.unlink()
    except (FileExistsError, NotADirectoryError):
        raise BadHome(f"{home} is a file, or below one. Name a folder with --home DIR or HERMES_HOME.") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        remedy = "Make it writable for this user, or name another folder with --home DIR or HERMES_HOME."
        raise BadHome(f"{home} cannot be written: {why}. {remedy}") from None


def write_private(path: Path, text: str) -> None:
    """Writes a file of settings whole or not at all, readable only for its owner. A link keeps pointing where it does. Raises OSError.

    A file that is there keeps its owner, and its mode unless everybody could read it. A new one gets mode 0600 and, written by root, the owner of its folder: the
    service of another user has to read what an admin writes.
    """
    target = path.resolve()
    try:
        with written_whole(target) as file:
            file.write(text)
            handle = file.fileno()
            existing = target.stat() if target.exists() else None
            if existing is not None and not existing.st_mode & 0o007:
                os.fchmod(handle, existing.st_mode & 0o777)
            if os.geteuid() == 0:
                owner = existing or target.parent.stat()
                os.fchown(handle, owner.st_uid, owner.st_gid)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # nobody knows the temporary file
        raise
