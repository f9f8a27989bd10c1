"""Makes vectors of notes and of new messages, so that they can be searched by meaning, when an endpoint for embeddings is configured.

While the endpoint fails or is slow, search uses words alone.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from gateway.agent.models.embedder import Embedder, Vector, embedding_settings
from gateway.agent.models.interface import ModelError
from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import memory
from sessions.errors import StateError
from sessions.leases import HOUSE
from sessions.memory.vectors import QueryVector
from sessions.records import Observation
from sessions.topics import Topic, Touch

log = get_logger(__name__)

QUERY_SECONDS = 1.0
"""The longest time that a message waits for its vector."""
BATCH_SECONDS = 60.0
BATCH = 16
"""Notes in one call. Parsing the answer to more of them would block the event loop too long."""
REST_MS = 60_000
"""How long no call is made after a failure."""
GROUP_SECONDS = 2.0
ELSEWHERE_SECONDS = 60.0
"""How often it is looked whether it has become this process that makes them."""
LONGEST_QUERY = 2_000


class Embeddings:
    """Makes vectors by the endpoint that is configured now."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._embedder: Embedder | None = None
        self._former: list[Embedder] = []
        self._rests_until = 0
        self._is_away = False
        self._wake = asyncio.Event()

    @property
    def model(self) -> str | None:
        """Returns the configured model; None: there is no search by meaning."""
        settings = embedding_settings(self.app.config)
        return None if settings is None else settings.name

    async def of_query(self, text: str) -> QueryVector | None:
        """Returns the vector of a text that is searched for; None when no endpoint is configured, it has failed lately, or it does not
        answer in time."""
        model = self.model
        if model is None or not text.strip() or self.app.clock() < self._rests_until:
            return None
        found = await self._embed([text[:LONGEST_QUERY]], QUERY_SECONDS)
        return None if found is None else QueryVector(model=model, vector=found[0])

    async def run(self) -> None:
        """Makes the missing vectors of notes, at the start and after every change of the memory, until cancelled."""
        self._loop = asyncio.get_running_loop()
        unlisten = self.app.database.listen(self._on_commit, Topic.MEMORY)
        try:
            while True:
                # Of several processes one does it, or they would embed the same notes.
                mine = self.app.holders.is_held(HOUSE)
                again = (await self.make_some() if mine else ELSEWHERE_SECONDS) if self.model else None
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), again)
                await asyncio.sleep(GROUP_SECONDS)  # notes that come one after the other share a call
                self._wake.clear()
        finally:
            unlisten()

    def recheck(self) -> None:
        """Makes `run` look for missing vectors now. To be called after a change of the configuration."""
        self._wake.set()

    async def make_some(self) -> float | None:
        """Makes the missing vectors. Returns in how many seconds to try again after a failure; None: none is missing."""
        with contextlib.suppress(StateError):  # whoever watches the database tells of it; this is done again
            while (model := self.model) and (
                waiting := await self.app.database.read(memory.vectors.missing, model, BATCH)
            ):
                if not await self._make(model, waiting):
                    return max(1.0, (self._rests_until - self.app.clock()) / 1000)
            return None
        return REST_MS / 1000

    async def _make(self, model: str, waiting: Sequence[Observation]) -> bool:
        if self.app.clock() < self._rests_until:
            return False
        found = await self._embed([embedded_text(note) for note in waiting], BATCH_SECONDS)
        if found is None:
            return False
        # Packed before the transaction, which the only writer would spend on arithmetic.
        packed = await asyncio.to_thread(lambda: list(map(memory.vectors.packed, found)))
        by_ns: dict[str, dict[int, bytes]] = {}
        for note, vector in zip(waiting, packed, strict=True):
            by_ns.setdefault(note.ns, {})[note.id] = vector
        for ns, vectors in by_ns.items():
            await self.app.database.write(memory.vectors.put, ns, model, vectors)
        return True

    async def _embed(self, texts: Sequence[str], seconds: float) -> list[Vector] | None:
        embedder = self._current()
        if embedder is None:
            return None
        try:
            async with asyncio.timeout(seconds):
                found = await embedder.embed(texts)
        except (ModelError, TimeoutError) as error:
            self._failed(str(error) or f"no answer within {seconds:g} s", slow=isinstance(error, TimeoutError))
            return None
        self.app.metrics.embedded("answered")
        if self._is_away:
            self._is_away = False
            log.info("embeddings.back", model=embedder.settings.name)
        return found

    def _failed(self, why: str, *, slow: bool) -> None:
        self.app.metrics.embedded("slow" if slow else "failed")
        self._rests_until = self.app.clock() + REST_MS
        if not self._is_away:
            self._is_away = True
            log.warning("embeddings.unavailable", model=self.model, error=why)

    def _current(self) -> Embedder | None:
        settings = embedding_settings(self.app.config)
        if self._embedder is not None and self._embedder.settings != settings:
            self._former.append(self._embedder)  # somebody may be in the middle of a call
            self._embedder, self._rests_until = None, 0  # the pause was that of the former endpoint
        if self._embedder is None and settings is not None:
            self._embedder = Embedder(settings)
        return self._embedder

    async def aclose(self) -> None:
        for embedder in (*self._former, *([self._embedder] if self._embedder else [])):
            await embedder.aclose()

    def _on_commit(self, _: frozenset[Touch]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake.set)


def embedded_text(note: Observation) -> str:
    """Returns the text of a note for which a vector is made: the note, its cause, and the questions that it answers."""
    return "\n".join(part for part in (*note.said, *note.asked_as) if part)
