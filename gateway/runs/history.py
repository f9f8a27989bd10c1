"""Keeps the end of journals and the memory of namespaces, and reads again only what has changed."""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sqlalchemy import Connection

from sessions import memory, store
from sessions.memory import PromptNote
from sessions.records import EndReason, Message, Role, Run, Session

EARLIER = 160
"""Messages before those of the run. Folds keep fewer unfolded, so that nothing falls between."""
SPARE = 8
"""So many more messages are read and kept: then the next step need not read earlier ones again."""
MOST = 4_000
_KEPT_BYTES, _KEPT_OF_ONE = 12_000_000, 1_800_000
_COPIES, _BESIDE = 3, 1_200
"""A message that is kept, as a row, as a part of a request and as JSON: bytes for each character, and beside them."""


@dataclass(frozen=True, slots=True)
class _Kept:
    rewrites: int
    rows: list[Message]
    size: int


class JournalTails:
    """Keeps the newest settled messages of the sessions that were worked on last. Safe to use from several threads: lists are replaced,
    never changed.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0

    def history(self, conn: Connection, run: Run, session: Session) -> list[Message]:
        """Returns all messages of this run and those before it. The start is the same at every step, so that prompts share it; after very
        many calls it is the message that the run is about.
        """
        kept = self._kept.get(session.id)
        if kept is None or kept.rewrites != session.rewrites:
            rows = _usable(store.last_messages(conn, session.id, EARLIER + SPARE))
            if len(rows) < EARLIER and session.parent_session_id is not None:
                rows = [*self._of_parent(conn, session.parent_session_id, EARLIER + SPARE - len(rows)), *rows]
        else:
            rows = [*kept.rows, *_usable(store.messages_after(conn, session.id, kept.rows[-1].id if kept.rows else 0))]
        self._keep(run, session, rows, kept)
        found = rows
        while True:
            own = [message.run_id for message in found].count(run.id)
            start = max(0, len(found) - own - EARLIER)
            asked = any(message.role is Role.USER for message in found[start : len(found) - own])
            if len(found) < EARLIER or (own + EARLIER <= len(found) and asked) or len(found) >= MOST:
                return found if not asked else found[start:]
            more = _usable(store.last_messages(conn, session.id, 2 * len(found) + own))
            if len(more) <= len(found):
                return found if not asked else found[start:]
            found = more

    def _of_parent(self, conn: Connection, session_id: str, wanted: int) -> list[Message]:
        """Returns messages of the session that this one continues."""
        if store.get(conn, session_id).end_reason is not EndReason.COMPRESSED:
            return []
        return _usable(store.last_messages(conn, session_id, wanted))

    def _keep(self, run: Run, session: Session, rows: list[Message], before: _Kept | None) -> None:
        count = len(rows)  # of those that will not change; rows of the session that this one continues come first
        while count and rows[count - 1].id > session.settled_to and rows[count - 1].session_id == session.id:
            count -= 1
        settled = rows[:count]
        known = before if before is not None and before.rewrites == session.rewrites else _Kept(session.rewrites, [], 0)
        if len(settled) == len(known.rows):
            return
        # Those of a long run must not push out the ones before it, which its next step needs again.
        most = EARLIER + SPARE + [message.run_id for message in settled].count(run.id)
        size = known.size + _size_of(settled[len(known.rows) :]) - _size_of(settled[:-most])
        settled = settled[-most:]
        self._kept.pop(session.id, None)
        if size <= _KEPT_OF_ONE and settled:
            self._kept[session.id] = _Kept(session.rewrites, settled, size)
        while sum(kept.size for kept in list(self._kept.values())) > _KEPT_BYTES:
            self._kept.popitem(last=False)


def _usable(rows: Sequence[Message]) -> list[Message]:
    """Returns the messages with such tool calls only as an endpoint takes: an import may have brought others."""
    return [replace(each, tool_calls=_well_formed(each.tool_calls)) if each.tool_calls else each for each in rows]


def _well_formed(found: Any) -> list[dict[str, Any]] | None:
    """Returns the calls that are some: with an id, a function's name, and arguments, which are text."""
    calls = cast(list[Any], found) if isinstance(found, list) else []
    kept: list[dict[str, Any]] = []
    for call in calls:
        match call:
            case {"id": str(), "function": {"name": str(), "arguments": str()}}:
                kept.append(cast(dict[str, Any], call))
            case {"id": str(), "function": {"name": str(), **others} as function}:
                arguments = json.dumps(others.get("arguments") or {}, ensure_ascii=False)
                kept.append({**cast(dict[str, Any], call), "function": {**function, "arguments": arguments}})
            case _:
                pass
    return kept or None


def _size_of(rows: Sequence[Message]) -> int:
    return sum(len(message.content or "") * _COPIES + _BESIDE for message in rows)


_KEPT = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The notes of a namespace in order, and its digest. `forgotten`: ids of messages that recall does not show, because notes from them
    were removed. `derived`: what requests have computed from all this; it is kept as long as nothing has changed."""

    notes: Sequence[PromptNote] = ()
    digest: str = ""
    forgotten: frozenset[int] = frozenset()
    derived: dict[str, Any] = field(compare=False, repr=False, default_factory=dict[str, Any])


class MemoryViews:
    """Keeps the views of the namespaces that were asked for last. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, Remembered]] = OrderedDict()

    def of(self, conn: Connection, ns: str) -> Remembered:
        """Returns what is remembered of this namespace now. Every change of it is counted in its row (`memory.digest.changed`)."""
        state = memory.state(conn, ns)  # one row; the notes themselves are read again only when its counter has moved
        kept = self._kept.get(ns)
        if kept is not None and kept[0] == state.changes:
            return kept[1]
        found = Remembered(
            notes=memory.lines(conn, ns), digest=state.digest, forgotten=memory.forgotten_sources(conn, ns)
        )
        self._kept[ns] = (state.changes, found)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found
