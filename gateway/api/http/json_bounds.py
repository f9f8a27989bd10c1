"""Checks a JSON text before it is parsed: the number of its values, and that its numbers are finite. Parsed, a million empty objects (3 MB)
would need gigabytes.
"""

import json
import math
import re
from typing import Any

from gateway.api.http.errors import invalid

MOST_VALUES = 100_000
_NEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{,]', re.DOTALL)


def require_few_values(sent: bytes) -> None:
    """Raises ApiError when the text has more than MOST_VALUES values."""
    if sent.count(b",") + sent.count(b"[") + sent.count(b"{") <= MOST_VALUES:
        return
    found = 0
    for match in _NEXT.finditer(sent):
        found += sent[match.start()] != 0x22  # commas and brackets inside of texts are no values
        if found > MOST_VALUES:
            raise invalid(
                f"The body holds more than {MOST_VALUES:,} values. Send less at once.", code="too_many_values"
            )


_STRANGE = re.compile(rb"NaN|Infinity|[eE]\+?[0-9]{3}")
_SLICE, _LONGEST = 65_536, len("Infinity")


def require_numbers(sent: bytes) -> None:
    """Raises ApiError when a number is NaN or infinite, because no model endpoint accepts it. A text that is no JSON passes: the parser
    refuses it later."""
    slices = range(0, len(sent), _SLICE)  # one look at 24 MB would hold Python's lock all the time
    if not any(_STRANGE.search(sent, at, at + _SLICE + _LONGEST) for at in slices):
        return
    try:
        json.loads(sent, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        return


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> float:
    raise invalid(f"{text[:40]} is no number that JSON knows.", code="bad_json")


def whole(value: Any) -> Any:
    """Returns 2.0 as the integer 2, as JSON makes no difference between them; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
