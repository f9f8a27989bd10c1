"""Vectors of notes, made by a model for embeddings, and the search in them: it compares all vectors of one namespace with the asked one.

Vectors have length one, so their dot product is their similarity.
"""

import heapq
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from sqlalchemy import Connection, delete, insert, or_, select

from sessions.db.schema import note_vectors, observations
from sessions.db.sql import lock, param
from sessions.records import Observation

NEAREST = 8
"""How many of the nearest notes are used."""
LOOKED_AT = 2_000
"""How many vectors of a namespace, the newest, are compared: about 25 ms, in the thread of a reader."""
FOR_EACH = 4
"""How many messages of one note are returned at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryVector:
    """The vector of a text that is searched for, and the model that made it."""

    model: str
    vector: Sequence[float]


_MISSING = (
    select(observations)
    .outerjoin(note_vectors, note_vectors.c.id == observations.c.id)
    .where(or_(note_vectors.c.id.is_(None), note_vectors.c.model != param("of_model")))
    .order_by(observations.c.id.desc())
    .limit(param("most"))
)
_THERE = select(observations.c.id).where(observations.c.id == param("number"), observations.c.ns == param("of"))
_NEWEST = (
    select(note_vectors.c.id, note_vectors.c.vector)
    .where(note_vectors.c.ns == param("of"), note_vectors.c.model == param("of_model"))
    .order_by(note_vectors.c.id.desc())
    .limit(LOOKED_AT)
)


def missing(conn: Connection, model: str, most: int) -> list[Observation]:
    """Returns notes without a vector of this model, newest first."""
    rows = conn.execute(_MISSING, {"of_model": model, "most": most}).mappings()
    return [Observation.from_row(row) for row in rows]


def put(conn: Connection, ns: str, model: str, vectors: Mapping[int, bytes]) -> None:
    """Stores the packed vectors of notes of this namespace and replaces those of another model."""
    lock(conn, f"memory of {ns}")
    for number, vector in vectors.items():
        conn.execute(delete(note_vectors).where(note_vectors.c.id == number))
        # The note may have been removed while its vector was made.
        if conn.scalar(_THERE, {"number": number, "of": ns}) is not None:
            values = {"id": number, "ns": ns, "model": model, "vector": vector}
            conn.execute(insert(note_vectors), values)


def nearest(conn: Connection, ns: str, asked: QueryVector | None) -> list[int]:
    """Returns the ids of the messages that the most similar notes of this namespace are from, most similar first; empty when `asked` is
    None."""
    if asked is None:
        return []
    wanted = unpacked(packed(asked.vector))  # scaled and rounded as the stored ones
    # An endpoint may answer under the same name with a model of another length.
    rows = [row for row in conn.execute(_NEWEST, {"of": ns, "of_model": asked.model}) if len(row[1]) == 4 * len(wanted)]
    products = ((sum(map(mul, wanted, unpacked(row[1]))), row[0]) for row in rows)
    best = [number for _, number in heapq.nlargest(NEAREST, products)]
    sources = conn.execute(
        select(observations.c.id, observations.c.src).where(observations.c.id.in_(best), observations.c.ns == ns)
    ).all()
    said_in = {row[0]: row[1][:FOR_EACH] for row in sources}
    return list(dict.fromkeys(message for number in best for message in said_in.get(number, ())))


def packed(vector: Sequence[float]) -> bytes:
    """Returns the vector, scaled to length one, as bytes."""
    length = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    return struct.pack(f"<{len(vector)}f", *(part / length for part in vector))


def unpacked(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // 4}f", vector)
