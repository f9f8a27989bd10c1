"""Memory beside the messages: observations, which are never edited, and one digest for each namespace. Plain functions `(conn, …)`.

All sessions of a namespace share its notes, its search and its files. Which namespace a session belongs to follows from its key (`sessions/keys.py`).
"""

from sessions.memory import vectors
from sessions.memory.digest import MemoryState, namespaces, state
from sessions.memory.folds import (
    FoldMaterial,
    NewObservation,
    Unfolded,
    begin,
    commit,
    continue_if_long,
    count_unfolded,
    folded_to,
    give_up,
    material,
    put_off,
    release,
    skip,
    unfolded,
)
from sessions.memory.forgotten import forgotten_sources, newest_forgotten
from sessions.memory.observations import (
    KINDS,
    MAX_TEXT,
    about,
    all_open,
    by_id,
    forget,
    get_open,
    note,
    open_notes,
    remove_namespace,
    remove_session,
    render,
    replaced,
    take_back,
)
from sessions.memory.selection import PromptNote, choose, lines

__all__ = [
    "KINDS",
    "MAX_TEXT",
    "FoldMaterial",
    "MemoryState",
    "NewObservation",
    "PromptNote",
    "Unfolded",
    "about",
    "all_open",
    "begin",
    "by_id",
    "choose",
    "commit",
    "continue_if_long",
    "count_unfolded",
    "folded_to",
    "forget",
    "forgotten_sources",
    "get_open",
    "give_up",
    "lines",
    "material",
    "namespaces",
    "newest_forgotten",
    "note",
    "open_notes",
    "put_off",
    "release",
    "remove_namespace",
    "remove_session",
    "render",
    "replaced",
    "skip",
    "state",
    "take_back",
    "unfolded",
    "vectors",
]
