"""What adapters do alike with what a platform sends: its JSON, files, and calls that failed.

They read JSON without trusting its shape and files up to a limit, and tell what a failed call means for a message, and how long to wait.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import aiohttp

from adapters.base import TryLater, Undeliverable
from sessions.messages import AttachmentKind

Json = Mapping[str, Any]

MALFORMED = Exception
"""What a library or a normalizer raises for an event of a shape that nobody expected: anything at all. Caught only around code that reads one
event and waits for nothing. Such an event is skipped: it must not stop those behind it, and would be as odd if it were sent again."""


def as_object(value: Any) -> Json:
    """Returns the value if it is an object, else an empty one."""
    return cast(Json, value) if isinstance(value, Mapping) else {}


def part(parent: Any, key: str) -> Json:
    """Returns the object at this key, or an empty one."""
    return as_object(as_object(parent).get(key))


def parts(parent: Any, key: str) -> list[Json]:
    """Returns the objects in the list at this key; other values are left out."""
    found = as_object(parent).get(key)
    items = cast(Sequence[Any], found) if isinstance(found, list) else ()
    return [cast(Json, one) for one in items if isinstance(one, Mapping)]


def text(parent: Any, key: str) -> str:
    """Returns the text or number at this key as text; empty where there is none."""
    found = as_object(parent).get(key)
    return str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""


_PICTURES = {"image/jpeg", "image/png", "image/gif", "image/webp"}


def attachment_kind(mime: str) -> AttachmentKind:
    """Returns the kind of a file by its media type. A picture that models cannot read is a mere file."""
    if mime in _PICTURES:
        return AttachmentKind.IMAGE
    kinds = {"audio": AttachmentKind.AUDIO, "video": AttachmentKind.VIDEO}
    return kinds.get(mime.partition("/")[0], AttachmentKind.FILE)


async def read_at_most(answer: aiohttp.ClientResponse, limit: int) -> bytes:
    """Returns the body of an answer. Raises Undeliverable when it is larger than `limit` bytes."""
    data = bytearray()
    async for piece in answer.content.iter_any():
        data += piece
        if len(data) > limit:
            raise Undeliverable(f"The file is larger than {limit} bytes.")
    return bytes(data)


def seconds_to_wait(retry_after: object) -> float | None:
    """Returns the seconds of a `Retry-After` header; None where there is none that can be read."""
    value = str(retry_after or "")
    return float(value) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) else None


NEVER_WRITTEN = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
"""Failures before the first byte was written. All others may have reached the platform, so the send is doubtful."""


def without_answer(platform: str, error: Exception) -> TryLater:
    """Returns the error of the contract for a call that got no answer; `platform`: its name for people."""
    if isinstance(error, NEVER_WRITTEN):
        return TryLater(f"{platform} cannot be reached ({type(error).__name__}).")
    return TryLater(f"{platform} did not answer ({type(error).__name__}).", ambiguous=True)
