"""`hermes backup` and `hermes restore`: a whole home in one file, made while the daemon runs."""

import io
import json
import os
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Collection, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

import click

from gateway.cli.base import Cli, operator, pass_cli
from gateway.cli.database_access import DATABASE, opened, shares_files
from gateway.cli.output import Failed, Wrong, tell
from gateway.config.problems import BadConfig
from gateway.config.sources import Sources, database_url
from gateway.home import check_home, is_used
from gateway.texts import counted, format_size
from sessions import audit, meta
from sessions.clock import iso, now_ms
from sessions.db import open_database
from sessions.db.unfinished_moves import without_password
from sessions.restored import hold_back, rename_home
from sessions.shared_folders import SharedFolders

MANIFEST = "backup.json"
MOST_BYTES, MOST_FILES = 2**30, 100_000
_BEFORE = ("config.yaml", "config.schema.json", ".env", "api_key", "sessions")
_OTHER_KINDS = {".zip", ".7z", ".rar", ".bz2", ".xz", ".zst"}
_AFTER = ("skills", "workspace", "outgoing")
"""Transcripts follow the database, so they are read before it; files are there before the rows that name them, so they are read after it."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Replace FILE without asking.")
@pass_cli
def backup(cli: Cli, file: Path, yes: bool) -> None:
    """Write everything of this home into FILE (.tar or .tar.gz), also while the gateway runs.

    It holds secrets and conversations: only you may read it.
    """
    check_home(cli.home)
    url = database_url(cli.home, cli.environ)
    on_server = bool(url)
    if not on_server and not (cli.home / DATABASE).exists():
        raise Failed(f"There is nothing to save in {cli.home} yet.")
    if file.suffix in _OTHER_KINDS:
        raise Wrong(f"A backup is a .tar or a .tar.gz. Name the file so, such as {file.with_suffix('.tar.gz')}.")
    _may_replace(file, yes=yes)
    began = now_ms()
    stored = _stored_files(cli) if on_server else set[Path]()
    # In the folder of FILE, so that the last step is a rename on the same disk: an old backup is replaced whole or not at all.
    with tempfile.TemporaryDirectory(dir=file.absolute().parent, prefix=".hermes-backup-") as folder:
        made = Path(folder) / "backup"
        with _written(made, packed=file.name.endswith(("gz", "tgz"))) as archive:
            found = _save(cli.home, archive, Path(folder), on_server=on_server, stored=stored, at=began)
        made.replace(file)
    with opened(cli) as database:
        database.write_now(meta.put, meta.LAST_BACKUP, str(began))
    click.echo(f"Saved {counted(found, 'file')} of {cli.home} in {file} ({format_size(file.stat().st_size)}).")
    click.echo("It holds your keys and everything that was said: keep it private.")
    if on_server:
        what = "sessions, the agent's files and skills" if stored else "sessions"
        click.echo(f"The {what} are in PostgreSQL and not in this file. Save them, too:")
        click.echo(f"pg_dump --format=custom --file=hermes.dump '{without_password(url)}'")


def _stored_files(cli: Cli) -> set[Path]:
    """Returns the files that the database of the team has. They are not saved: put back later, they would pass for changes."""
    with suppress(BadConfig):
        if shares_files(Sources.of(cli.home, cli.environ)):
            with opened(cli) as database:
                return SharedFolders(cli.home, database).stored()
    return set()


def _may_replace(file: Path, *, yes: bool) -> None:
    if file.is_dir():
        raise Failed(f"{file} is a folder. Name a file, such as {file / 'hermes.tar'}.")
    if not file.exists() or yes:
        return
    if not sys.stdin.isatty():
        raise Failed(f"{file} is there already. Name another file, or replace it with --yes.")
    click.confirm(f"{file} is there already. Replace it?", abort=True)


@contextmanager
def _written(path: Path, *, packed: bool) -> Generator[tarfile.TarFile]:
    """Opens an archive that only its owner may read; it is on the disk when the block ends."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
        # dereference: a file of two names is written twice and not as a link, which a restore refuses.
        with tarfile.open(fileobj=handle, mode="w|gz" if packed else "w|", dereference=True) as archive:
            yield archive
        # A rename can reach the disk before the data does: without fsync a power cut leaves an empty file.
        handle.flush()
        os.fsync(handle.fileno())


def _save(
    home: Path, archive: tarfile.TarFile, folder: Path, *, on_server: bool, stored: Collection[Path], at: int
) -> int:
    program = {"program": "hermes-gateway", "version": version("hermes-gateway")}
    facts = {**program, "created_at": iso(at), "home": str(home.resolve())}
    text = json.dumps(facts).encode()
    entry = tarfile.TarInfo(MANIFEST)
    entry.size, entry.mode, entry.mtime = len(text), 0o600, int(now_ms() / 1000)
    archive.addfile(entry, io.BytesIO(text))
    saved = (path for path in _files(home, (*_BEFORE, DATABASE, *_AFTER)) if path not in stored)
    size = sum(path.stat().st_size for path in saved if path.exists())
    count = 0
    with click.progressbar(length=max(1, size), label="Saving", file=sys.stderr) as progress:
        for path in _files(home, _BEFORE):
            count += _add(archive, home, path, progress)
        if not on_server:
            snapshot = folder / DATABASE
            _snapshot(home / DATABASE, snapshot)
            archive.add(snapshot, DATABASE)
            progress.update(snapshot.stat().st_size)
            count += 1
        for path in (path for path in _files(home, _AFTER) if path not in stored):
            count += _add(archive, home, path, progress)
    return count


def _snapshot(database: Path, to: Path) -> None:
    """Copies the database as it is at this moment, without pages of what was deleted. Writers go on meanwhile."""
    with closing(sqlite3.connect(database, isolation_level=None)) as conn:
        conn.execute("PRAGMA busy_timeout = 30000")
        # The backup API would copy deleted pages too, and start over with every write of another process.
        conn.execute("VACUUM INTO ?", (str(to),))
    to.chmod(0o600)


def _files(home: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        place = home / name
        if place.is_file() and not place.is_symlink():
            yield place
        for folder, below, files in os.walk(place):
            below.sort()
            for file in sorted(files):
                path = Path(folder) / file
                # A link may lead out of the home; sockets and pipes have no contents.
                if path.is_file() and not path.is_symlink():
                    yield path


def _add(archive: tarfile.TarFile, home: Path, path: Path, progress: Any) -> int:
    """Adds a file: one that grows meanwhile as long as it was, one that has gone not at all."""
    try:
        with path.open("rb") as handle:
            # The size in the header is final: a transcript that grows while it is copied would damage the archive.
            entry = archive.gettarinfo(arcname=str(path.relative_to(home)), fileobj=handle)
            archive.addfile(entry, io.BytesIO(handle.read(entry.size)) if entry.size < 1 << 20 else handle)
    except FileNotFoundError:
        return 0
    progress.update(entry.size)
    return 1


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--yes", is_flag=True, help="Put an existing home aside without asking.")
@click.option("--large", is_flag=True, help="Take more than 1 GB or 100,000 files.")
@pass_cli
def restore(cli: Cli, file: Path, yes: bool, large: bool) -> None:
    """Make the home anew from FILE. What is in the home now is kept under another name."""
    check_home(cli.home)
    if cli.home.is_dir():
        _require_stopped(cli.home)
    cli.home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cli.home.parent, prefix=".hermes-restore-") as folder:
        found = Path(folder) / "home"
        was_in = _unpack(file, found, large=large)
        held = _settle(found, was_in, cli.home)
        if not cli.home.exists() or not any(cli.home.iterdir()):
            aside = None
            if cli.home.exists():
                cli.home.rmdir()
        else:
            if not yes:
                if not sys.stdin.isatty():
                    raise Failed(f"{cli.home} holds something. With --yes it is put aside under another name.")
                click.confirm(f"{cli.home} holds something. Put it aside under another name?", abort=True)
            _require_stopped(cli.home)  # it may have been started meanwhile
            stamp = f"{cli.home.name}.before-{datetime.now(UTC):%Y%m%d-%H%M%S}"
            names = (cli.home.with_name(f"{stamp}{end}") for end in ("", *(f"-{n}" for n in range(2, 100))))
            aside = next(name for name in names if not name.exists())
            cli.home.rename(aside)
        found.rename(cli.home)
    click.echo(f"Restored {cli.home} from {file}.")
    if aside is not None:
        click.echo(f"What was there before is in {aside}.")
    if held:
        tell(
            f"{counted(held, 'message')} that still had to be sent then may have been sent since: `hermes outbox list` shows them, "
            "`hermes outbox send N` sends one."
        )
    if was_in and Path(was_in) != cli.home.resolve() and is_used(Path(was_in)):
        click.echo(
            f"{was_in}, from which it was saved, is still there. Run only one of the two: they have the same bots."
        )
    tell("`hermes gateway run` starts it; `hermes sessions list` shows what it holds.")


def _require_stopped(home: Path) -> None:
    """Raises AlreadyRunning while a daemon has the lock of the home: it would go on writing into the one that is put aside."""
    from gateway.cli.process import stopped

    with stopped(home):
        pass


def _unpack_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, home: Path) -> None:
    """Writes one file or folder. Raises tarfile.TarError for anything else: a link could lead out of the home."""
    name = PurePosixPath(entry.name)
    is_plain = entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not entry.issparse()
    if name.is_absolute() or ".." in name.parts or not (is_plain or entry.isdir()):
        raise tarfile.ExtractError(f"{entry.name} is no ordinary file below the home")
    place = home / name
    (place if entry.isdir() else place.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_plain and (data := archive.extractfile(entry)) is not None:
        # O_EXCL: nothing is written twice.
        with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as written:
            shutil.copyfileobj(data, written)
        os.utime(place, (entry.mtime, entry.mtime))


def _settle(found: Path, was_in: str, home: Path) -> int:
    """Rewrites the paths of attachments, which are stored whole, and holds back what was under way. Returns how many messages that are. A
    database on a server is not in the backup: its home keeps its place.
    """
    if not (found / DATABASE).exists():
        return 0
    database = open_database(found)
    try:
        if was_in and Path(was_in) != home.resolve():
            database.write_now(rename_home, Path(was_in), home.resolve())
        database.write_now(audit.record, now_ms(), operator(), "home.restored", was_in or str(home))
        return database.write_now(hold_back, now_ms())
    finally:
        database.close()


def _unpack(file: Path, home: Path, *, large: bool) -> str:
    """Unpacks into the folder, and never outside of it. Returns where the home was. Raises Failed for what is no whole backup of ours."""
    from sessions.db.sqlite import quick_check

    home.mkdir(mode=0o700)
    try:
        with tarfile.open(file) as archive:
            size = 0
            for count, entry in enumerate(archive, 1):
                size += entry.size
                if not large and (size > MOST_BYTES or count > MOST_FILES):
                    raise Failed(
                        f"{file} holds more than 1 GB or 100,000 files. If you know where it comes from, restore it with --large. "
                        "Nothing was changed."
                    )
                _unpack_entry(archive, entry, home)
        facts = json.loads((home / MANIFEST).read_text())
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        why = str(error).splitlines()[0].rstrip(":")
        raise Failed(f"{file} is no backup that can be read: {why}. Nothing was changed.") from error
    if facts.get("program") != "hermes-gateway":
        raise Failed(f"{file} was not written by `hermes backup`. Nothing was changed.")
    (home / MANIFEST).unlink()
    if (home / DATABASE).exists():
        quick_check(home / DATABASE)
    return str(facts.get("home", ""))
