"""The folder in which everything is kept."""

from collections.abc import Mapping
from pathlib import Path


class BadHome(Exception):
    """The home cannot be used; the message says why and what to do."""


def resolve_home(option: str | None, environ: Mapping[str, str]) -> Path:
    """`--home` over HERMES_HOME over ~/.hermes, absolute. Nothing is created. Raises BadHome where there is no ~."""
    try:
        return Path(option or environ.get("HERMES_HOME") or "~/.hermes").expanduser().absolute()
    except RuntimeError:
        raise BadHome("This user has no home folder. Name one with --home DIR or HERMES_HOME.") from None


def check_home(home: Path) -> None:
    """For those who only look: there may be no home, but no file in its place. Raises BadHome."""
    if any(place.exists() and not place.is_dir() for place in (home, *home.parents)):
        raise BadHome(f"{home} is a file, or below one. Name a folder with --home DIR or HERMES_HOME.")


def is_open(home: Path) -> bool:
    """Whether others on this machine can look into it."""
    return home.is_dir() and bool(home.stat().st_mode & 0o077)


def prepare_home(home: Path) -> None:
    """Create the home, for its owner only. One that is there stays as it is. Raises BadHome."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = home / ".hermes-can-write"
        probe.touch(mode=0o600)
        probe.unlink()
    except (FileExistsError, NotADirectoryError):
        raise BadHome(f"{home} is a file, or below one. Name a folder with --home DIR or HERMES_HOME.") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        remedy = "Make it writable for this user, or name another folder with --home DIR or HERMES_HOME."
        raise BadHome(f"{home} cannot be written: {why}. {remedy}") from None
