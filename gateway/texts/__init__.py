"""The texts that the gateway itself says in a chat; times, durations and numbers as people read them; other people's texts without what
drives a terminal.
"""

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from string import Formatter
from zoneinfo import ZoneInfo

from sessions.clock import as_time


@lru_cache
def _catalogue() -> dict[str, dict[str, str]]:
    return tomllib.loads((files(__name__) / "en.toml").read_text(encoding="utf-8"))


def say(name: str, /, **values: object) -> str:
    """Returns the text of this name (`run.stopped`), with its values filled in. Raises KeyError for a missing name or value."""
    section, _, key = name.partition(".")
    return _catalogue()[section][key].format(**values)


def needed(name: str) -> set[str]:
    """Returns the names of the values that a text needs."""
    section, _, key = name.partition(".")
    return {field for _, field, _, _ in Formatter().parse(_catalogue()[section][key]) if field}


def format_short_time(ms: int, now: int, timezone: str) -> str:
    """Formats the time of day for today, day and time for this year, else the date."""
    zone = ZoneInfo(timezone)
    then = as_time(ms, zone)
    today = as_time(now, zone)
    if then.date() == today.date():
        return f"{then:%H:%M}"
    if then.year == today.year:
        return f"{then.day} {then:%b} {then:%H:%M}"
    return f"{then.day} {then:%b} {then:%Y}"


def format_time(ms: int, timezone: str) -> str:
    """Formats `Mon 5 Jan 2026 09:00`."""
    then = as_time(ms, ZoneInfo(timezone))
    return f"{then:%a} {then.day} {then:%b %Y %H:%M}"


def format_size(size: int) -> str:
    """Formats bytes: `3.2 MB`, `40 kB`."""
    return f"{size / 2**20:.1f} MB" if size >= 2**20 else f"{max(1, size // 1024)} kB"


def format_duration(seconds: float) -> str:
    """Formats `40 s`, `5 min`, `3 h 10 min`, `2 days`."""
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{int(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{hours // 24} days"


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Replaces what could drive a terminal, or turn the direction of what stands behind."""
    return CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def one_line(text: str, width: int | None = None) -> str:
    line = " ".join(clean(text).split())
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
