"""Selects the notes that a request shows: all when they fit, else those with the most weight and the newest.

The selection is repeated only after every STEP new notes. Until then new notes are appended, so that the beginning of the request stays
the same and endpoints can cache it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, or_, select

from sessions.clock import iso
from sessions.db.schema import observations
from sessions.db.sql import param
from sessions.memory.observations import PINNED, render, replaced
from sessions.records import Observation

READ = 400
STEP = 16
"""The selection is repeated after this many new notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptNote:
    """A note as a request shows it. `chosen`: it existed when the selection was last made. `short`: what small models are shown instead,
    without an older state, which they take for the present one; empty for a note that was replaced."""

    id: int
    text: str
    weight: int
    chosen: bool
    short: str | None = None


# Replaced notes count too: else each replacement would move the moment of the next selection.
_THERE = (
    observations.c.ns == param("of"),
    or_(observations.c.closed_at.is_(None), observations.c.closed_by.is_not(None)),
)
_COUNT = select(func.count()).select_from(observations).where(*_THERE)
_NEWEST = select(observations).where(*_THERE).order_by(observations.c.id.desc()).limit(READ)
_WEIGHTIEST = (
    select(observations)
    .where(*_THERE, observations.c.weight > 1, observations.c.id < param("before"))
    .order_by(observations.c.id.desc())
    .limit(READ)
)


def lines(conn: Connection, ns: str) -> list[PromptNote]:
    """Returns, by id, the open notes and those that were replaced after the last selection: their lines stay until the next one, and the
    line of the newer note says what is no longer true."""
    newest = _read(conn, _NEWEST, ns)
    if not newest:
        return []
    older = _read(conn, _WEIGHTIEST, ns, before=newest[0].id) if len(newest) == READ else []
    # The number of notes decides and nothing is stored: each process makes the same selection, also after a restart.
    fresh = (conn.scalar(_COUNT, {"of": ns}) or 0) % STEP
    base = newest[-fresh - 1].id if fresh < len(newest) else 0
    kept = [note for note in (*older, *newest) if note.closed_by is None or note.closed_by > base]
    before = replaced(conn, kept)
    return [
        PromptNote(
            id=note.id,
            text=render(note, before.get(note.supersedes or 0)),
            weight=note.weight,
            chosen=note.id <= base,
            short=_short(note),
        )
        for note in kept
    ]


def _short(note: Observation) -> str | None:
    if note.closed_by is not None:
        return ""
    return f"{render(note, None)} (changed on {iso(note.said_at)[:10]})" if note.supersedes else None


def _read(conn: Connection, query: Select[Any], ns: str, **more: object) -> list[Observation]:
    rows = conn.execute(query, {"of": ns, **more}).mappings()
    return [Observation.from_row(row) for row in rows][::-1]


def choose(found: Sequence[PromptNote], budget: int, cost: Mapping[int, int]) -> list[PromptNote]:
    """Returns the notes that fit into the budget, in their order. `cost`: of each note, by its id."""
    if sum(cost.values()) <= budget:
        return list(found)
    older, newer = ([line for line in found if line.chosen is wanted] for wanted in (True, False))
    kept = _weightiest(older, budget * 3 // 4, cost)  # a quarter is for what is noted until the next selection
    kept |= _newest(newer, budget - sum(cost[number] for number in kept), cost)
    return [line for line in found if line.id in kept]


def _weightiest(found: Sequence[PromptNote], budget: int, cost: Mapping[int, int]) -> set[int]:
    """Returns the ids that fit: first notes that were saved on purpose, then by weight and age."""
    age = {line.id: len(found) - place for place, line in enumerate(found)}
    kept: set[int] = set()
    for line in sorted(found, key=lambda line: (line.weight >= PINNED, _score(line, age[line.id])), reverse=True):
        if cost[line.id] <= budget:
            budget -= cost[line.id]
            kept.add(line.id)
    return kept


def _score(line: PromptNote, age: int) -> float:
    return (1 + math.log1p(min(line.weight, PINNED))) / age


def _newest(found: Sequence[PromptNote], budget: int, cost: Mapping[int, int]) -> set[int]:
    kept: set[int] = set()
    for line in reversed(found):
        budget -= cost[line.id]
        if budget < 0:
            break
        kept.add(line.id)
    return kept
