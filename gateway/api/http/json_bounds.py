"""Checks a JSON text before it is parsed: the number of its values, and that its numbers are finite. A million empty objects (3 MB) would
need gigabytes once they are parsed.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from gateway.api.http.errors import invalid

MOST_VALUES = 100_000
_SLICE = 16_384
"""Bytes that are looked at in one go. Longer slices would hold the GIL for too long."""
_LONGEST = len("Infinity")
"""Bytes that are searched again with the next slice, because a number may go on there."""
# Only an exponent of three digits can make a number infinite. Whether it does, a full parse tells.
_STRANGE = re.compile(rb"NaN|Infinity|[eE]\+?[0-9]{3}")


def require_bounded(sent: bytes) -> None:
    """Raises ApiError when the text has more than MOST_VALUES values, or a number that is NaN or infinite, which no model endpoint
    accepts. A text that is no JSON passes: the parser refuses it later."""
    found, before, is_strange = 0, b"", False
    for outside in _outside_of_strings(sent):
        found += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if found > MOST_VALUES:
            raise invalid(
                f"The body holds more than {MOST_VALUES:,} values. Send less at once.", code="too_many_values"
            )
        searched = before + outside
        is_strange = is_strange or _STRANGE.search(searched) is not None
        before = searched[-_LONGEST:]
    if is_strange:
        _require_finite(sent)


def _outside_of_strings(sent: bytes) -> Iterator[bytes]:
    """Yields the text without what stands in its strings, a slice at a time."""
    is_inside, carried = False, b""
    for at in range(0, len(sent), _SLICE):
        piece = (carried + sent[at : at + _SLICE]).replace(rb"\\", b"")
        carried = b"\\" if piece.endswith(b"\\") else b""  # it may escape the quote that the next slice begins with
        parts = piece.replace(rb"\"", b"").split(b'"')
        yield b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0  # an even number of parts means an odd number of quotes


def _require_finite(sent: bytes) -> None:
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(sent, parse_constant=_no_number, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> float:
    raise invalid(f"{text[:40]} is no number that JSON knows.", code="bad_json")


def as_integer(value: Any) -> Any:
    """Returns 2.0 as the integer 2, as JSON makes no difference between them; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
