"""Deletes what is over (answers by id, notes about requests, sent messages, old files), and mirrors commits into transcripts and the search index."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection

from gateway.attachments import outgoing_files
from gateway.attachments.inbox_files import INBOX
from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import audit, inbox, memory, outbox, processes, responses, store, workspace_files
from sessions.db import drop_copies, drop_copies_with_forgotten
from sessions.erase import erase
from sessions.errors import Busy
from sessions.leases import HOUSE
from sessions.search import message_index
from sessions.topics import Topic, Touch
from sessions.transcripts import Transcripts

log = get_logger(__name__)

MIRROR_SECONDS, MIRROR_REST = 0.3, 100
"""The least time between two writes of transcripts, and how many times as long as the last write took: many messages of a busy session are
written at once, and it costs 1 % of the time at most."""
CATCH_UP_SECONDS = 60
"""Seconds. After a crash a start has to check the mirrors of what was committed since the last round."""
INDEX_SECONDS = 2.0
"""How long what is new waits for its neighbours, to be indexed once and with them. Whoever searches does not wait: a search indexes first."""
PRUNE_SECONDS = 3600
NOTES_MS = 7 * 24 * 3600 * 1000
"""How long a request that has made something is recognised when it is sent again."""
RESPONSES_MS = 30 * 24 * 3600 * 1000
"""How long an answer is kept by its id."""
COPIES_SECONDS = 7 * 24 * 3600
"""How long the copy of the database from before an upgrade is kept."""
DAY_MS = 24 * 3_600_000
_BATCH = 100


def _seconds_of(work: Callable[[], object]) -> float:
    """Does it, and returns the CPU time that it took: not that for which it waited for others."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


class Maintenance:
    """Mirrors commits into transcripts and search index. `run` can be cancelled; `close` brings everything up to date."""

    def __init__(self, app: App) -> None:
        self.app = app
        # Of several processes of one home the first writes them.
        self._transcripts = Transcripts(app.home, app.database) if app.slot == 1 else None
        self._loop = asyncio.get_running_loop()
        self._grown = asyncio.Event()
        self._grown.set()  # an earlier process may have left something unindexed
        self._unlisten = app.database.listen(self._on_commit, Topic.SESSION)

    def _on_commit(self, _: frozenset[Touch]) -> None:
        if not self._grown.is_set():
            self._loop.call_soon_threadsafe(self._grown.set)

    async def repair(self) -> None:
        """Completes transcripts and index after a crash."""
        if self._transcripts is not None:
            await asyncio.to_thread(self._transcripts.repair)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._transcripts is not None:
                group.create_task(self._mirror(self._transcripts))
                group.create_task(self._catch_up(self._transcripts))
            group.create_task(self._index())
            group.create_task(self._prune())

    async def _mirror(self, transcripts: Transcripts) -> None:
        took = 0.0
        while True:
            await asyncio.sleep(max(MIRROR_SECONDS, MIRROR_REST * took))
            if transcripts.due:
                try:
                    took = await asyncio.to_thread(_seconds_of, transcripts.flush)
                except Exception as error:  # noqa: BLE001  # a full disk must not end the daemon; what failed stays due
                    log.warning("transcripts.behind", error=str(error))

    async def _catch_up(self, transcripts: Transcripts) -> None:
        while True:
            await asyncio.sleep(CATCH_UP_SECONDS)
            try:
                await asyncio.to_thread(transcripts.catch_up)
            except Exception as error:  # noqa: BLE001  # as above
                log.warning("transcripts.behind", error=str(error))

    async def _index(self) -> None:
        while True:
            await self._grown.wait()
            await asyncio.sleep(INDEX_SECONDS)
            if not self.app.holders.is_held(HOUSE):  # it stays due here, for when the lease is taken over
                continue
            self._grown.clear()
            try:
                for step in (message_index.index_some, message_index.merge_step):
                    while await self.app.database.write(step):  # noqa: ASYNC110  # each round does a part
                        await asyncio.sleep(0)
            except Exception as error:  # noqa: BLE001  # the index is made whole by the next search at the latest
                log.warning("index.behind", error=str(error))

    async def _prune(self) -> None:
        while True:
            try:
                if self.app.holders.is_held(HOUSE):
                    await self._prune_database()
                await self.prune_home()
            except Exception as error:  # noqa: BLE001  # nothing depends on it; the next round finds what is left
                log.warning("upkeep.not_pruned", error=str(error))
            await asyncio.sleep(PRUNE_SECONDS)

    async def _prune_database(self) -> None:
        await self._in_rounds(inbox.prune_notes, self.app.clock() - NOTES_MS)
        await self._prune_responses()
        await self._in_rounds(inbox.prune_deleted_keys, self.app.clock() - inbox.DELETED_KEYS_KEPT_MS)
        await self._in_rounds(processes.prune, self.app.clock() - NOTES_MS)
        if self.app.files is not None:
            now, days = self.app.clock(), self.app.config.retention.files_days
            unsent = await self.app.database.read(outbox.unsent_files)
            waiting = [outgoing_files.folder_of(key) for key in unsent]
            await self.app.database.write(workspace_files.prune_outgoing, waiting, now - PRUNE_SECONDS * 1000)
            if days:
                await self.app.database.write(workspace_files.prune_received, INBOX, now - days * DAY_MS)
        await self.prune_old()

    async def prune_home(self) -> None:
        """What lies in this home alone, also where several share the database."""
        older_than = self.app.clock() / 1000 - COPIES_SECONDS
        await asyncio.to_thread(drop_copies, self.app.home, older_than=older_than)
        newest = await self.app.database.read(memory.newest_forgotten)
        await asyncio.to_thread(drop_copies_with_forgotten, self.app.home, newest)
        unsent = await self.app.database.read(outbox.unsent_files)
        await asyncio.to_thread(
            outgoing_files.prune, self.app.outgoing, unsent, self.app.clock() / 1000 - PRUNE_SECONDS
        )
        if days := self.app.config.retention.files_days:
            before = (self.app.clock() - days * DAY_MS) / 1000
            await asyncio.to_thread(_prune_files, self.app.home / "workspace", before)

    async def _in_rounds(self, prune: Callable[[Connection, int, int], int], before: int) -> None:
        while await self.app.database.write(prune, before, _BATCH) == _BATCH:  # noqa: ASYNC110  # each round does a part
            await asyncio.sleep(0)

    async def prune_old(self) -> None:
        """Deletes what is older than the configuration keeps it in the database."""
        kept, now = self.app.config.retention, self.app.clock()
        if kept.outbox_days:
            await self._in_rounds(outbox.prune, now - kept.outbox_days * DAY_MS)
        if kept.audit_days:
            await self._in_rounds(audit.prune, now - kept.audit_days * DAY_MS)
        if kept.sessions_days:
            old = await self.app.database.read(store.ended_before, now - kept.sessions_days * DAY_MS)
            gone = (
                await asyncio.to_thread(erase, self.app.home, self.app.database, old, by="retention", now=now)
                if old
                else 0
            )
            if gone:
                log.info("sessions.pruned", count=gone, older_than_days=kept.sessions_days)

    async def _prune_responses(self) -> None:
        before = self.app.clock() - RESPONSES_MS
        while old := await self.app.database.read(responses.older_than, before, _BATCH):
            removed = [await self._remove_response(response_id) for response_id in old]
            if len(old) < _BATCH or not any(removed):
                return

    async def _remove_response(self, response_id: str) -> bool:
        """Removes one kept answer, and its session with the last of a chain. Returns False when that is still worked on."""
        try:
            orphans = await self.app.database.write(responses.remove, response_id)
        except Busy:
            return False
        if orphans:
            await asyncio.to_thread(
                erase, self.app.home, self.app.database, orphans, by="retention", now=self.app.clock()
            )
        return True

    async def close(self) -> None:
        self._unlisten()
        # Everything that is committed by now; `run` was cancelled before.
        while await self.app.database.write(message_index.index_some):
            pass
        if self._transcripts is not None:
            await asyncio.to_thread(self._transcripts.close)


def _prune_files(workspaces: Path, before: float) -> None:
    """Deletes received files of all namespaces that were saved before this time (epoch seconds)."""
    for path in workspaces.glob(f"*/{INBOX}/*"):
        # A link was made by the agent and may lead anywhere; what it points to was not received.
        if not path.is_symlink() and path.is_file() and path.stat().st_mtime < before:
            path.unlink(missing_ok=True)
