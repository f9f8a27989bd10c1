"""Formats times and durations for people."""

from zoneinfo import ZoneInfo

from sessions.clock import as_time


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
