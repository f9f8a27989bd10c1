"""Keeps marks of notes that people had removed, so that no fold brings them back. A mark is a keyed hash of a note's stems, so short that
many words share it: no word of the note stays.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select

from sessions.db.query import stems
from sessions.db.schema import forgotten, messages, meta
from sessions.db.sql import insert_or_ignore, param
from sessions.records import Observation

_KEY = "forgotten_key"
_BYTES = 2
_ALIKE, _ALIKE_FROM_THE_SAME = 0.75, 0.5
"""How much of the smaller of two texts has to be the same; less is enough where both are from the same message."""
_KEPT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """Tells whether a text says again what was forgotten. `up_to`: only what was said up to this message counts; after that it may be
    said anew."""

    key: bytes
    marks: tuple[tuple[int, frozenset[int], frozenset[str]], ...] = ()

    def holds(self, text: str, said_in: Sequence[int]) -> bool:
        """Whether this text, from these messages, was forgotten."""
        found = _marks(self.key, text)
        newest = max(said_in, default=0)
        return any(
            newest <= up_to and _share(found, marks) >= (_ALIKE_FROM_THE_SAME if src & set(said_in) else _ALIKE)
            for up_to, src, marks in self.marks
        )

    def without(self, digest: str) -> str:
        """The digest without the sentences that say it."""
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
    """Of whatever namespace; 0 when nothing was ever forgotten."""
    return conn.scalar(select(func.max(forgotten.c.id))) or 0


def of_namespace(conn: Connection, ns: str) -> Forgotten:
    """All that was forgotten there."""
    columns = (forgotten.c.up_to, forgotten.c.src, forgotten.c.marks)
    rows = conn.execute(select(*columns).where(forgotten.c.ns == ns)).all()
    if not rows:
        return Forgotten(key=b"")
    marks = [(row[0], frozenset(json.loads(row[1])), frozenset(json.loads(row[2]))) for row in rows]
    return Forgotten(key=_key(conn), marks=tuple(marks))


def add(conn: Connection, gone: Observation) -> None:
    """Keeps the marks of a note that is being removed. The oldest of very many marks are dropped."""
    values = {
        "ns": gone.ns,
        "up_to": conn.scalar(select(func.max(messages.c.id))) or 0,
        "src": json.dumps(list(gone.src)),
        "marks": json.dumps(sorted(_marks(_key(conn), gone.text))),
    }
    conn.execute(insert(forgotten), values)
    newest = select(forgotten.c.id).where(forgotten.c.ns == gone.ns).order_by(forgotten.c.id.desc()).limit(_KEPT)
    conn.execute(delete(forgotten).where(forgotten.c.ns == gone.ns, forgotten.c.id.not_in(newest)))


def lift(conn: Connection, ns: str, text: str) -> None:
    """Somebody wants it kept after all."""
    known = of_namespace(conn, ns)
    if known.marks:
        wanted = _marks(known.key, text)
        rows = conn.execute(select(forgotten.c.id, forgotten.c.marks).where(forgotten.c.ns == ns)).all()
        again = [row[0] for row in rows if _share(wanted, frozenset(json.loads(row[1]))) >= _ALIKE]
        conn.execute(delete(forgotten).where(forgotten.c.id.in_(again)))


_SOURCES = select(forgotten.c.src).where(forgotten.c.ns == param("of"))


def forgotten_sources(conn: Connection, ns: str) -> frozenset[int]:
    """The messages that forgotten notes were from: nothing of them comes back by itself."""
    return frozenset(number for text in conn.scalars(_SOURCES, {"of": ns}) for number in json.loads(text))


def _key(conn: Connection) -> bytes:
    insert_or_ignore(conn, meta, {"key": _KEY, "value": secrets.token_hex(16)})
    return bytes.fromhex(conn.scalar(select(meta.c.value).where(meta.c.key == _KEY)) or "")
