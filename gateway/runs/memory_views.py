"""Reads what is remembered of a namespace, for the prompt and for recall, again only when it has changed."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from sessions import memory
from sessions.memory import PromptNote

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
