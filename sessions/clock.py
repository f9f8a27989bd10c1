"""Reads the time as UTC epoch milliseconds, and formats it. Functions that need the time get it as a parameter."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

Clock = Callable[[], int]
LAST_MS = 253_402_128_000_000
"""30 December 9999, the last day that Python can show in every time zone."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def as_time(ms: int, zone: tzinfo = UTC) -> datetime:
    """Returns the moment in a time zone; for one that no calendar shows, the nearest that it does, so that a list with it can be read."""
    return datetime.fromtimestamp(min(max(ms, 0), LAST_MS) / 1000, UTC).astimezone(zone)


def iso(ms: int) -> str:
    """ISO 8601 with offset."""
    return as_time(ms).isoformat(timespec="milliseconds")
