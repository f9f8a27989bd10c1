"""Reads the time as UTC epoch milliseconds, and formats it. Functions that need the time get it as a parameter."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def iso(ms: int) -> str:
    """ISO 8601 with offset."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
