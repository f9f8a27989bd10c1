"""The files of a team: what a tool needs is brought before it runs, and what it changed is stored before its result is.

Only on PostgreSQL, and not where the homes are one folder.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from sqlalchemy import Connection

from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import workspace_files as table
from sessions.db.engine import WaitingDatabase
from sessions.errors import DatabaseUnavailable, StateError
from sessions.files import folder_name
from sessions.records import Run
from sessions.runs.journal import check_fence
from sessions.shared_folders import SharedFolders, local
from sessions.topics import Topic, Touch, ids_of
from sessions.workspace_files import OUTGOING, SKILLS

P = ParamSpec("P")
T = TypeVar("T")
log = get_logger(__name__)

LOOK_SECONDS = 60.0
"""How often is looked for skills of which no word has come; and for what was deleted elsewhere, in every sixtieth round."""
_THREADS = 4
_MOST_TOLD = 1_000


class SharedFiles:
    """Keeps the folders of this home and the database the same. `bring`, `keep` and `receive` may be called again after DatabaseUnavailable; `put` and
    `local` wait until the database is back."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._folders = SharedFolders(app.home, app.database)
        # Threads of its own: large files must not hold up what else waits for a thread.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="files")
        self._waiting = WaitingDatabase(app.database, _log_wait)
        self._are_skills_old = True
        self._gone = set[str]()
        self._wake = asyncio.Event()
        self._told = set[str]()
        self._loop: asyncio.AbstractEventLoop | None = None  # of `run`
        self._unlisten = app.database.listen(self._on_commit, Topic.FILES)

    async def aclose(self) -> None:
        self._unlisten()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args, **kwargs))

    # --- around a tool ---

    async def bring(self, folder: str, ns: str) -> None:
        """Brings what others have changed in the workspace of this namespace, or in the skills."""
        await self._sync(_name_of(folder, ns))

    async def keep(self, folder: str, ns: str, run: Run, now: int) -> None:
        """Stores what was changed in it. Raises LeaseLost when the run was stopped or taken over."""

        def guard(conn: Connection) -> None:
            check_fence(conn, run, now)

        name = _name_of(folder, ns)
        with self._logged(name):
            self._tell(name, await self._do(self._folders.give, name, guard))

    async def keep_written(self, ns: str) -> None:
        """Stores what a command in the background has written. Raises DatabaseUnavailable."""
        name = folder_name(ns)
        with self._logged(name):
            self._tell(name, await self._do(self._folders.give, name))

    async def bring_skills(self) -> None:
        """Brings the skills, where another process has told that some have changed."""
        if self._are_skills_old:
            self._are_skills_old = False
            try:
                await self._sync(SKILLS)
            except DatabaseUnavailable:  # those that are here do until it is back
                self._are_skills_old = True

    async def _sync(self, name: str) -> None:
        with self._logged(name):
            self._tell(name, await self._do(self._folders.sync, name))

    @contextlib.contextmanager
    def _logged(self, name: str) -> Generator[None]:
        try:
            yield
        except OSError as error:  # a full disk: the run goes on with what is here
            log.warning("files.not_shared", folder=name, error=str(error))

    def _tell(self, name: str, left: Collection[str]) -> None:
        for path in left:
            if (one := f"{name}/{path}") not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add(one)
                log.warning("files.not_shared", folder=name, error=f"{path} is too large, or one too many")

    # --- what is received and sent ---

    async def receive(self, ns: str, save: Callable[[], Path]) -> Path:
        """Stores a file that was sent to us, before its message is. `save` writes it, in a thread. Returns its path."""
        return await self._do(self._folders.receive, folder_name(ns), save)

    async def discard(self, ns: str, places: Collection[Path]) -> None:
        """Deletes files of a message that was refused."""
        await self._do(self._folders.discard, folder_name(ns), places)

    async def put(self, place: Path) -> None:
        """Stores a file that is to be sent, for whoever is connected with its platform."""
        await self._waiting.until_available(lambda: self._do(self._folders.put, place))

    async def local(self, stored: Collection[str]) -> dict[str, str]:
        """Returns where these files are here, whoever stored them. Brings those that are not."""
        places = {each: local(self.app.home, each) for each in stored}
        with self._logged("received and sent"):
            await self._waiting.until_available(lambda: self._do(self._folders.bring, list(places.values())))
        return {each: str(place) for each, place in places.items()}

    # --- beside the runs ---

    async def forget(self, ns: str) -> None:
        """Deletes all files of a namespace, in every home."""
        await self.app.database.write(table.remove_all, folder_name(ns))

    def _on_commit(self, touched: frozenset[Touch]) -> None:
        names = set(ids_of(Topic.FILES, touched))
        if SKILLS in names:
            self._are_skills_old = True
        if (gone := names - {SKILLS, OUTGOING}) and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._note_gone, gone)

    def _note_gone(self, names: set[str]) -> None:
        self._gone |= names
        self._wake.set()

    async def run(self) -> None:
        """Deletes here what was deleted elsewhere, and brings the skills, until cancelled."""
        self._loop, rounds = asyncio.get_running_loop(), 0
        while True:
            with contextlib.suppress(StateError):  # the next round finds it
                await self._sync(SKILLS)
                if rounds % 60 == 0:
                    self._gone |= set(await self._do(self._folders.behind))
                    await self._follow()
            rounds += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    while True:
                        await self._wake.wait()
                        self._wake.clear()
                        await self._follow()

    async def _follow(self) -> None:
        gone, self._gone = self._gone, set[str]()
        for name in sorted(gone & set(await self._do(self._folders.known))):
            with contextlib.suppress(StateError):
                await self._sync(name)


def _log_wait(error: DatabaseUnavailable, pause: float) -> None:
    log.warning("database.unavailable", error=str(error), retry_in=pause)


def _name_of(folder: str, ns: str) -> str:
    return SKILLS if folder == SKILLS else folder_name(ns)


async def save_received(app: App, ns: str, save: Callable[[], Path]) -> Path:
    """Saves a file that was sent to us in the workspace of this namespace, for the whole team. Returns its path. Raises OSError."""
    return await (asyncio.to_thread(save) if app.files is None else app.files.receive(ns, save))


async def remove_received(app: App, ns: str, places: Collection[Path]) -> None:
    """Deletes files of a message that was refused, for the whole team."""
    if app.files is not None and places:
        with contextlib.suppress(DatabaseUnavailable):  # they are gone here, and elsewhere with the next tool
            await app.files.discard(ns, places)
    for place in places:
        await asyncio.to_thread(place.unlink, missing_ok=True)
