"""Runs folds: background model calls that turn messages into notes and a new digest.

A session is folded when its unfolded messages take more tokens than a prompt surely shows or are very many, when nobody has written for some minutes, and when it has ended. At most one fold
at a time works on a namespace, also with several processes.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gateway.agent.memory.checks import checked, may_replace, without_secrets
from gateway.agent.memory.fold import (
    DIGEST_TOKENS,
    MOST_TOKENS,
    SMALL_MOST_TOKENS,
    BadFold,
    FoldedNote,
    fold_request,
    parse,
    replaces_request,
    salvage,
    says_yes,
    statements,
)
from gateway.agent.models.interface import Answer, ContextOverflow, ModelError, ModelRefused, ModelRequest
from gateway.agent.system_prompt import whole_sentences
from gateway.agent.window import window_of
from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import memory, spending, store
from sessions.clock import iso
from sessions.errors import StateError
from sessions.memory import FoldMaterial, NewObservation, Unfolded
from sessions.memory.folds import LONGEST_PAUSE_MS
from sessions.records import Source
from sessions.search.query import stems
from sessions.topics import Topic, Touch, ids_of

log = get_logger(__name__)

TRIGGER_COUNT = 120
"""With more unfolded messages than this, the older half is folded; `gateway/runs/history.py` reads a few more than this for a request."""
IDLE_MS, IDLE_TOKENS = 10 * 60_000, 500
"""After this time without a message everything is folded, when it is more than IDLE_TOKENS."""
REMEMBER_MS = 60_000
"""The same after a message that asks to remember something: a small model says that it has noted it, and has not."""
GROUP_SECONDS = 1.0
"""How long the worker waits after a message, so that several messages share one read of the database."""
SCAN_SECONDS, FIRST_SCAN_SECONDS = 600.0, 20.0
"""How often all sessions are read: other processes write messages too."""
LEASE_MS = 15 * 60_000
AT_ONCE = 2
SMALL_WINDOW = 16_384
"""A model with no more than this is a small one as a rule: a fold asks it for less, and after a failed fold every model."""
ASKED = 3
"""In one fold a small model is asked about so many older notes, whether they are still true."""
ATTEMPTS = 3
SHRINKS = 3
FIRST_PAUSE_MS = 60_000
_FIXED_TOKENS = 2_000
"""Tokens of a request without its messages: instructions, digest and candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The notes and the digest of an answer. `digest` None: the old one stays."""

    notes: Sequence[FoldedNote]
    digest: str | None


class FoldWorker:
    """Folds sessions that are due. `run` may be cancelled at any time: a fold that was not committed is repeated later."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._watched: dict[str, int] = {}  # session → when to look at it
        self._wake = asyncio.Event()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._folding: set[str] = set()  # namespaces
        self._behind: dict[str, set[str]] = {}  # namespace → sessions that wait for the fold of another one
        self._rests_until, self._pause = 0, FIRST_PAUSE_MS

    async def run(self) -> None:
        """Folds sessions that are due, until cancelled."""
        self._loop = asyncio.get_running_loop()
        unlisten = self.app.database.listen(self._on_commit, Topic.SESSION, only_own=True)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._scan())
                while True:
                    await self._wait()
                    for due, keep in await self._due():
                        if due.ns in self._folding:
                            self._behind.setdefault(due.ns, set()).add(due.session_id)
                        else:
                            self._folding.add(due.ns)
                            group.create_task(self._fold_in_turn(due, keep), name=f"fold {due.session_id}")
        finally:
            unlisten()

    def _on_commit(self, touched: frozenset[Touch]) -> None:
        # Called in the thread that writes, and `_watched` belongs to the loop.
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._watch_now, ids_of(Topic.SESSION, touched))

    def _watch_now(self, session_ids: Iterable[str]) -> None:
        self._watched.update(dict.fromkeys(session_ids, 0))
        self._wake.set()

    async def _wait(self) -> None:
        next_check = min(self._watched.values(), default=None)
        longest = LONGEST_PAUSE_MS / 1000
        seconds = None if next_check is None else min(max(0.0, (next_check - self.app.clock()) / 1000), longest)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
        await asyncio.sleep(GROUP_SECONDS)
        self._wake.clear()  # nothing is lost: what was noted until now is looked at next

    async def _scan(self) -> None:
        await asyncio.sleep(FIRST_SCAN_SECONDS)
        while True:
            if self.app.config.memory.enabled:
                with contextlib.suppress(StateError):  # whoever watches the database tells of it; this is done again
                    for each in await self.app.database.read(memory.unfolded):
                        # Not over a later time: that may be the end of a pause after a failure.
                        self._watched.setdefault(each.session_id, 0)
                    self._wake.set()
            await asyncio.sleep(SCAN_SECONDS)

    async def _due(self) -> list[tuple[Unfolded, int]]:
        """Returns the sessions that are due, each with the number of its newest tokens that stay unfolded."""
        now = self.app.clock()
        # What seems to be further ahead than any pause was noted before the clock was set back.
        asked = [session_id for session_id, at in self._watched.items() if not now < at <= now + LONGEST_PAUSE_MS]
        for session_id in asked:
            del self._watched[session_id]
        if not asked or not self.app.config.memory.enabled:
            return []
        try:
            found = await self.app.database.read(memory.unfolded, asked)
        except StateError:
            self._watched.update(dict.fromkeys(asked, now + FIRST_PAUSE_MS))
            return []
        due: list[tuple[Unfolded, int]] = []
        for each in found:
            keep = self.tokens_to_keep(each, now)
            if keep is None:
                if _is_worth_it(each):
                    self._watched[each.session_id] = each.last_at + _silence(each)
            elif now < self._rests_until <= now + LONGEST_PAUSE_MS:  # the model is away, for sessions of all namespaces
                self._watched[each.session_id] = self._rests_until
            else:
                due.append((each, keep))
        return due

    def tokens_to_keep(self, each: Unfolded, now: int) -> int | None:
        """Returns how many of its newest tokens stay unfolded; None: it is not due."""
        if each.ended:
            return 0
        window = window_of(self.app, None)
        if each.tokens > window.unfolded:
            return window.unfolded // (4 if window.is_small else 2)
        if each.count > TRIGGER_COUNT:
            return each.tokens // 2
        return 0 if now >= each.last_at + _silence(each) and _is_worth_it(each) else None

    # --- one fold ---

    async def _fold_in_turn(self, due: Unfolded, keep: int) -> None:
        try:
            async with self._places:
                again_at = await self.fold(due.session_id, keep=keep)
        except Exception as error:  # noqa: BLE001  # what goes on behind the conversations must not end the worker
            log.warning("fold.failed", session_id=due.session_id, error=f"{type(error).__name__}: {error}")
            again_at = self.app.clock() + FIRST_PAUSE_MS
        finally:
            self._folding.discard(due.ns)
        if again_at is not None:
            self._watched[due.session_id] = again_at
        # At the hour of the daily reset all sessions of a person end at once.
        self._watch_now(self._behind.pop(due.ns, ()))

    async def fold(self, session_id: str, *, keep: int = 0) -> int | None:
        """Folds the oldest messages of this session but the newest `keep` tokens. Returns when to look at the session again; None: only
        after a new message."""
        try:
            ns = (await self.app.database.read(store.get, session_id)).ns
        except StateError:
            return None
        now = self.app.clock()
        # A row, because another process may fold this namespace at the same moment.
        if not await self.app.database.write(memory.begin, ns, self.app.owner, now, lease_ms=LEASE_MS):
            until = (await self.app.database.read(memory.state, ns)).retry_at
            return min(max(until, now + FIRST_PAUSE_MS), now + LONGEST_PAUSE_MS)
        try:
            return await self._fold(ns, session_id, keep)
        finally:
            await self.app.database.write(memory.release, ns, self.app.owner)

    async def _fold(self, ns: str, session_id: str, keep: int) -> int | None:
        began, usage = self.app.clock(), (0, 0)
        window = window_of(self.app, self.app.fast)
        small = window.size <= SMALL_WINDOW
        most = max(300, min(SMALL_MOST_TOKENS if small else MOST_TOKENS, window.room - _FIXED_TOKENS))
        for _ in range(SHRINKS + 1):
            material = await self.app.database.read(memory.material, session_id, keep=keep, most=most)
            if material is None:
                return None
            small = small or material.fails > 0
            # Nothing that a person has told: it is marked, and no call is spent.
            if not (statements(material.messages) if small else material.messages):
                await self.app.database.write(memory.commit, material, (), None, self.app.clock())
                return 0 if material.messages else None
            if await self._day_is_spent():
                return self.app.clock() + LONGEST_PAUSE_MS
            try:
                read, usage = await self._ask(material, most, small=small)
            except ContextOverflow:
                most //= 2
                continue
            except ModelError as error:
                return await self._put_off(ns, material, error)
            if read is None:
                break
            return await self._commit(material, read, began, usage, small=small)
        else:  # too long each time; the failure counts for the smallest part that was tried, and not for all that is unfolded
            material = await self.app.database.read(memory.material, session_id, keep=keep, most=most)
        return None if material is None else await self._failed(ns, material, began, usage)

    async def _day_is_spent(self) -> bool:
        limits = self.app.config.limits
        if not limits.counts_days:
            return False
        today = await self.app.database.read(spending.of_day, self.app.today())
        return limits.reached(steps=0, tokens=0, seconds=0, today=today) is not None

    async def _ask(self, material: FoldMaterial, most: int, *, small: bool) -> tuple[_Read | None, tuple[int, int]]:
        """Asks the model. After an answer that cannot be parsed it asks once more, then takes the complete notes of either answer. Returns None
        when there are none; and the input and output tokens."""
        error = last = ""
        texts: list[str] = []
        read = written = 0
        for _ in range(2):
            asked = fold_request(
                material, self.app.tokens, model=self.app.fast, most=most, small=small, error=error, last=last
            )
            answer = await self._answer(material, asked)
            read, written = read + answer.usage.input_tokens, written + answer.usage.output_tokens
            texts.append(answer.text)
            try:
                parsed = parse(answer.text)
            except BadFold as bad:
                if small and answer.finish_reason == "length" and salvage(answer.text):
                    break  # it repeats itself, and would do so again
                error, last = str(bad), answer.text
            else:
                return _Read(notes=parsed.observations, digest=parsed.digest), (read, written)
        for text in reversed(texts):
            if complete := salvage(text):
                return _Read(notes=complete, digest=None), (read, written)
        log.warning("fold.not_understood", session_id=material.session.id, error=error)
        return None, (read, written)

    async def _answer(self, material: FoldMaterial, asked: ModelRequest) -> Answer:
        answer = await self.app.side_work.aside(self.app.model, asked)
        spent = (answer.usage.input_tokens, answer.usage.output_tokens)
        await self.app.database.write(
            spending.add_for_session, material.session.id, self.app.today(), spending.NOBODY, *spent
        )
        return answer

    async def _with_replaced(self, found: Sequence[NewObservation], material: FoldMaterial) -> list[NewObservation]:
        """Returns the notes, each with the number of the older one that it makes untrue. A small model that was asked for notes alone is asked
        about pairs that are alike, one by one, ASKED of them at most."""
        left, kept = ASKED, list(found)
        for at, note in enumerate(found):
            alike = [old for old in material.candidates if may_replace(note.text, old, material.messages)]
            old = max(alike, key=lambda old: len(stems(old.text) & stems(note.text)), default=None)
            if old is not None and note.replaces is None and left > 0:
                left -= 1
                question = replaces_request(old, note.text, model=self.app.fast)
                with contextlib.suppress(ModelError):  # the note itself is good
                    if says_yes((await self._answer(material, question)).text):
                        kept[at] = replace(note, replaces=old.id)
        return kept

    async def _commit(
        self, material: FoldMaterial, read: _Read, began: int, usage: tuple[int, int], *, small: bool
    ) -> int | None:
        # In a thread: the checks compare every word of the notes with every message, and would block the loop.
        found = await asyncio.to_thread(
            checked, read.notes, material.messages, material.candidates, in_their_words=small
        )
        if small:
            found = await self._with_replaced(found, material)
        digest = None if read.digest is None else self._short(read.digest)
        now = self.app.clock()
        new = await self.app.database.write(memory.commit, material, found, digest, now)
        outcome = "repeated" if new is None else "done" if new else "nothing"
        self.app.metrics.folded(outcome, (now - began) / 1000, *usage)
        self._rests_until, self._pause = 0, FIRST_PAUSE_MS
        log.info(
            "fold.done", session_id=material.session.id, messages=len(material.messages), new=new or 0, outcome=outcome
        )
        await self.app.database.write(memory.continue_if_long, material.session.id, now)
        return 0  # at once: a long conversation is folded in several parts

    def _short(self, digest: str) -> str:
        digest = without_secrets(" ".join(digest.split()))
        return whole_sentences(digest, DIGEST_TOKENS, self.app.tokens.text) or self.app.tokens.clip(
            digest, DIGEST_TOKENS
        )

    async def _put_off(self, ns: str, material: FoldMaterial, error: ModelError) -> int:
        """Handles an error of the model. When the model refuses these messages, the failure is counted; else folds of all namespaces
        rest. Returns when to try again."""
        # An outage must not count: after ATTEMPTS of them messages would be given up that nothing is wrong with.
        if isinstance(error, ModelRefused) and error.about_transcript:
            return await self._failed(ns, material, self.app.clock(), (0, 0))
        self._rests_until = until = self.app.clock() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_MS)
        await self.app.database.write(memory.put_off, ns, until, failed=False)
        self.app.metrics.folded("unreachable", 0.0, 0, 0)
        log.warning("fold.put_off", session_id=material.session.id, error=str(error))
        return until

    async def _failed(self, ns: str, material: FoldMaterial, began: int, usage: tuple[int, int]) -> int:
        """Counts a failure. After ATTEMPTS of them the messages are marked as folded, with one note that says so. Returns when to look again."""
        now = self.app.clock()
        self.app.metrics.folded("failed", (now - began) / 1000, *usage)
        until = now + FIRST_PAUSE_MS * 2 ** min(material.fails, 4)
        if await self.app.database.write(memory.put_off, ns, until, failed=True) < ATTEMPTS:
            return until
        log.warning("fold.given_up", session_id=material.session.id, messages=len(material.messages))
        await self.app.database.write(memory.give_up, material, gap_line(material), now)
        return 0


def gap_line(material: FoldMaterial) -> str:
    """Returns the note that stands for messages that could not be folded."""
    first, last = (iso(material.messages[at].created_at)[:10] for at in (0, -1))
    when = first if first == last else f"{first} to {last}"
    return f"{len(material.messages)} messages of {when} are not summarised; session_search finds them"


def _is_worth_it(each: Unfolded) -> bool:
    """Returns whether a silent session is folded: not when it is short, except in the terminal, where sessions are never reset, and where
    somebody asks to remember something."""
    return each.tokens > IDLE_TOKENS or each.source == Source.CLI or each.asks


def _silence(each: Unfolded) -> int:
    """Returns for how long nobody has written when everything is folded, in milliseconds."""
    return REMEMBER_MS if each.asks else IDLE_MS
