"""Reads the notes and the digest of a namespace for the prompt, again only when they have changed."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from sessions import memory
from sessions.memory import PromptNote

_KEPT = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """The notes of a namespace in order, and its digest."""

    notes: Sequence[PromptNote] = ()
    digest: str = ""


class MemoryViews:
    """Keeps the views of the namespaces that were asked for last. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, Remembered]] = OrderedDict()

    def of(self, conn: Connection, ns: str) -> Remembered:
        """Returns the notes and the digest of this namespace as they are now."""
        state = memory.state(conn, ns)
        kept = self._kept.get(ns)
        if kept is not None and kept[0] == state.changes:
            return kept[1]
        found = Remembered(notes=memory.lines(conn, ns), digest=state.digest)
        self._kept[ns] = (state.changes, found)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found
