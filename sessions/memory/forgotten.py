"""Stores marks of notes that people had removed, so that no fold brings them back.

A mark is a keyed hash of one stem of the note, and so short that many words share it: the words of the note cannot be read from it.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select

from sessions.db.schema import forgotten, messages, meta
from sessions.db.sql import insert_or_ignore, param
from sessions.records import Observation
from sessions.search.query import stems

_KEY = "forgotten_key"
_BYTES = 2
_ALIKE, _ALIKE_FROM_THE_SAME = 0.85, 0.5
"""The share of the marks of the shorter text that has to be in the other one; the second value holds when both are from the same message."""
_KEPT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The marks of one namespace. Each entry of `marks`: id of the newest message at the time, ids of the note's messages, hashes. A note
    from a later message is not held to be forgotten: people may say it anew."""

    key: bytes
    marks: tuple[tuple[int, frozenset[int], frozenset[str]], ...] = ()

    def holds(self, text: str, said_in: Sequence[int]) -> bool:
        """Returns whether a note with this text, from these messages, was removed by a person."""
        found = _marks(self.key, text)
        newest = max(said_in, default=0)
        # From one message fewer words have to agree: another fold of it says the same fact in other words.
        return any(
            newest <= up_to and _share(found, marks) >= (_ALIKE_FROM_THE_SAME if src & set(said_in) else _ALIKE)
            for up_to, src, marks in self.marks
        )

    def without(self, digest: str) -> str:
        """Returns the digest without the sentences that say what was removed."""
        sentences = [part for part in digest.replace("\n", " \n").split(". ") if part.strip()]
        kept = [part for part in sentences if not any(self._says(part, marks) for *_, marks in self.marks)]
        return digest if len(kept) == len(sentences) else ". ".join(kept).strip()

    def _says(self, text: str, marks: frozenset[str]) -> bool:
        return bool(marks) and len(_marks(self.key, text) & marks) >= max(1, len(marks) // 2)


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    smaller = min(len(one), len(other))
    return len(one & other) / smaller if smaller else 0.0


def _marks(key: bytes, text: str) -> frozenset[str]:
    return frozenset(hashlib.blake2b(stem.encode(), digest_size=_BYTES, key=key).hexdigest() for stem in stems(text))


def newest_forgotten(conn: Connection) -> int:
    """Returns the id of the newest mark of all namespaces; 0: there is none."""
    return conn.scalar(select(func.max(forgotten.c.id))) or 0


def of_namespace(conn: Connection, ns: str) -> Forgotten:
    """Returns the marks of this namespace."""
    columns = (forgotten.c.up_to, forgotten.c.src, forgotten.c.marks)
    rows = conn.execute(select(*columns).where(forgotten.c.ns == ns)).all()
    if not rows:
        return Forgotten(key=b"")  # without marks nothing is hashed, so no key has to be made yet
    marks = [(row[0], frozenset(row[1]), frozenset(row[2])) for row in rows]
    return Forgotten(key=_key(conn), marks=tuple(marks))


def add(conn: Connection, gone: Observation) -> None:
    """Stores the marks of a note that is being removed. Only the newest _KEPT entries of a namespace are kept."""
    values = {
        "ns": gone.ns,
        "up_to": conn.scalar(select(func.max(messages.c.id))) or 0,
        "src": list(gone.src),
        "marks": sorted(_marks(_key(conn), gone.text)),
    }
    conn.execute(insert(forgotten), values)
    newest = select(forgotten.c.id).where(forgotten.c.ns == gone.ns).order_by(forgotten.c.id.desc()).limit(_KEPT)
    conn.execute(delete(forgotten).where(forgotten.c.ns == gone.ns, forgotten.c.id.not_in(newest)))


def lift(conn: Connection, ns: str, text: str) -> bool:
    """Deletes the marks that match this text. Returns whether there were any. To be called when a person saves it again."""
    known = of_namespace(conn, ns)
    if not known.marks:
        return False
    wanted = _marks(known.key, text)
    rows = conn.execute(select(forgotten.c.id, forgotten.c.marks).where(forgotten.c.ns == ns)).all()
    again = [row[0] for row in rows if _share(wanted, frozenset(row[1])) >= _ALIKE]
    conn.execute(delete(forgotten).where(forgotten.c.id.in_(again)))
    return bool(again)


_SOURCES = select(forgotten.c.src).where(forgotten.c.ns == param("of"))


def forgotten_sources(conn: Connection, ns: str) -> frozenset[int]:
    """Returns the ids of the messages that removed notes were from. Recall does not show these messages."""
    return frozenset(number for numbers in conn.scalars(_SOURCES, {"of": ns}) for number in numbers)


def _key(conn: Connection) -> bytes:
    insert_or_ignore(conn, meta, {"key": _KEY, "value": secrets.token_hex(16)})
    return bytes.fromhex(conn.scalar(select(meta.c.value).where(meta.c.key == _KEY)) or "")
