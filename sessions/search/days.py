"""Finds the days that a text names, such as `on 4 May`, `yesterday`, `last Monday` or `2026-05-04`."""

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from sessions.clock import as_time

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NUMBERS = ("a", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})(?:[a-z]*)\.?"
_YEAR = r"(?:,?\s+(?P<year>\d{4}))?\b"
_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?P<year>\d{4})-(?P<number>\d{2})-(?P<day>\d{2})\b",
        rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?(?:\s+of)?\s+{_MONTH}{_YEAR}",
        rf"\b{_MONTH}\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:){_YEAR}",
        r"\b(?P<before>day before yesterday)\b",
        r"(?<!before )\b(?P<yesterday>yesterday|last night)\b",
        rf"\b(?:last|past)\s+(?P<weekday>{'|'.join(_WEEKDAYS)})(?:[a-z]*day)\b",
        rf"\b(?P<ago>\d{{1,3}}|{'|'.join(_NUMBERS)})\s+(?P<unit>day|week)s?\s+ago\b",
    )
)
_MAY_NAME = re.compile(r"\d|day|night|ago", re.IGNORECASE)
"""All that name a day contain one of these. One look is a quarter of the time of all patterns, and recall takes one for each message."""
MOST = 3
"""A text that names more days is looked at for the first ones."""
Span = tuple[int, int]
"""The first millisecond of a day, and that of the next one."""


def named_days(text: str, now: int, timezone: str) -> list[Span]:
    """Returns the days until today that the text names. `now`: when it was written. A day without a year is the last one of that name."""
    if _MAY_NAME.search(text) is None:
        return []
    zone = ZoneInfo(timezone)
    today = as_time(now, zone).date()
    days = (_day(match.groupdict(), today) for pattern in _NAMED for match in pattern.finditer(text))
    found = dict.fromkeys(day for day in days if day is not None and day <= today)
    return [_span(day, zone) for day in list(found)[:MOST]]


def _day(named: dict[str, str | None], today: date) -> date | None:
    if day := named.get("day"):
        return next(_dates(int(day), named, today), None)
    if weekday := named.get("weekday"):
        return today - timedelta(days=(today.weekday() - _WEEKDAYS.index(weekday[:3].lower()) - 1) % 7 + 1)
    if ago := named.get("ago"):
        number = int(ago) if ago.isdecimal() else _NUMBERS.index(ago.lower()) + 1
        return today - timedelta(days=number * (7 if named["unit"] == "week" else 1))
    return today - timedelta(days=2 if named.get("before") else 1)


def _dates(number: int, named: dict[str, str | None], today: date) -> Iterator[date]:
    """Yields the day in the year that is named, else in this one and the one before, as far as there is such a day that has come."""
    month = int(named.get("number") or 0) or _MONTHS.index((named["month"] or "")[:3].lower()) + 1
    for year in [int(named["year"] or 0)] if named.get("year") else [today.year, today.year - 1]:
        try:
            day = date(year, month, number)
        except ValueError:  # such as 31 April
            continue
        if day <= today:
            yield day


def _span(day: date, zone: ZoneInfo) -> Span:
    begins, ends = (datetime.combine(each, time(), zone) for each in (day, day + timedelta(days=1)))
    return int(begins.timestamp() * 1000), int(ends.timestamp() * 1000)
