"""Cron's own meaning of five fields, as in crontab(5), with the change of clocks as in Debian's cron.

`cronsim` reads the fields and knows which days they mean (day-of-month OR weekday). What it takes beyond cron is refused before: a sixth
field, `L`, `W`, `#`, and a step after a single number. The moments of a day are found here, because its own steps of an hour go wrong where
clocks change by half an hour, and in the second of two equal hours it names moments that are past.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from sessions.clock import as_time
from sessions.errors import Invalid

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _DAYS),
)
_TERM = re.compile(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", re.ASCII)
_YEARS = 50
_KEPT_DAYS = 8
_LONGEST_GAP = timedelta(hours=3)
"""A greater change of the clock is none of summer time, and what it skips does not run."""


def normalized(text: str) -> str:
    """The five fields in small letters. Raises Invalid, with the field and what it may be."""
    fields = text.strip().lower().split()
    if len(fields) != len(_FIELDS):
        raise Invalid(
            f"A cron schedule has five fields (minute hour day month weekday), and {text!r} has {len(fields)}."
        )
    checked = " ".join(_field(field, *about) for field, about in zip(fields, _FIELDS, strict=True))
    CronMoments.of(checked, "UTC")
    return checked


def _field(text: str, name: str, least: int, most: int, names: tuple[str, ...]) -> str:
    return ",".join(_term(term, name, least, most, names) for term in text.split(","))


def _term(text: str, name: str, least: int, most: int, names: tuple[str, ...]) -> str:
    allowed = f"{least}-{most}" + (f" or {names[0]}-{names[-1]}" if names else "")
    match = _TERM.fullmatch(text)
    if match is None:
        raise Invalid(
            f"The {name} cannot be {text!r}. Allowed: *, numbers {allowed}, ranges 1-5, lists 1,2, steps */5."
        )
    whole, first, last, step = match.groups()
    if step is not None and ((whole != "*" and last is None) or int(step) == 0):
        raise Invalid(f"The {name} cannot be {text!r}: a step of 1 or more follows * or a range, as in */5 or 0-30/5.")
    if whole == "*":
        return text
    values = [_value(each, text, name, allowed, least, names) for each in (first, last) if each is not None]
    # Sunday is 0 and 7: fri-sun ends with 7.
    if name == "weekday" and len(values) == 2 and last == "sun":
        values[1] = 7
    if not all(least <= value <= most for value in values) or values != sorted(values):
        raise Invalid(f"The {name} cannot be {text!r}. Allowed: {allowed}, the smaller first.")
    return "-".join(map(str, values)) + (f"/{step}" if step else "")


def _value(text: str, term: str, name: str, allowed: str, least: int, names: tuple[str, ...]) -> int:
    if text in names:
        return names.index(text) + least
    if not text.isdecimal() or len(text) > 4:
        raise Invalid(f"The {name} cannot be {term!r}. Allowed: {allowed}.")
    return int(text)


class CronMoments:
    """The moments of one expression in one time zone, in milliseconds."""

    def __init__(self, expr: str, timezone: str) -> None:
        from cronsim import CronSim, CronSimError

        try:
            self._cron = CronSim(expr, datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError:
            raise Invalid(f"{expr!r} never comes: no such month has such a day.") from None
        self._zone = ZoneInfo(timezone)
        minute, hour = expr.split()[:2]
        # As in Debian's cron: a job of a fixed time runs once on a day of changing clocks, one of every hour runs by real time.
        self._fixed = not minute.startswith("*") and not hour.startswith("*")
        self._days: dict[date, list[int]] = {}
        self._times = [time(h, m) for h in sorted(self._cron.hours) for m in sorted(self._cron.minutes)]

    @classmethod
    def of(cls, expr: str, timezone: str) -> "CronMoments":
        return _moments(expr, timezone)

    def after(self, moment: int) -> int | None:
        """The first one later than this. None: there is none in fifty years."""
        # A day earlier: a time that the clocks skip may be made up on the next day.
        start = self._date(moment) - timedelta(days=1)
        for day in range(366 * _YEARS):
            found = [each for each in self._of_day(start + timedelta(days=day)) if each > moment]
            if found:  # days may overlap where clocks are set back over midnight
                return min([*found, *(each for each in self._of_day(start + timedelta(days=day + 1)) if each > moment)])
        return None

    def at_or_before(self, moment: int, least: int) -> int | None:
        """The last one that is not later than `moment` and not before `least`."""
        day = self._date(moment) + timedelta(days=1)
        last_day = self._date(least) - timedelta(days=1)
        while day >= last_day:
            found = [each for each in self._of_day(day) if least <= each <= moment]
            if found:
                return max([*found, *(e for e in self._of_day(day - timedelta(days=1)) if least <= e <= moment)])
            day -= timedelta(days=1)
        return None

    def _date(self, moment: int) -> date:
        return as_time(moment, self._zone).date()

    def _of_day(self, day: date) -> list[int]:
        if (known := self._days.get(day)) is None:
            if len(self._days) >= _KEPT_DAYS:
                self._days.clear()
            known = self._days[day] = self._find(day)
        return known

    def _find(self, day: date) -> list[int]:
        if day.month not in self._cron.months or not self._cron.match_day(day):
            return []
        moments = (moment for at in self._times for moment in self._real(datetime.combine(day, at)))
        return sorted(dict.fromkeys(int(moment.timestamp() * 1000) for moment in moments))

    def _real(self, local: datetime) -> Iterator[datetime]:
        """A time of the clock as moments: both of two equal ones, unless the time is fixed; where it is skipped and fixed, when the clock
        has been moved on."""
        first, second = (local.replace(tzinfo=self._zone, fold=fold) for fold in (0, 1))
        gap = (first.utcoffset() or timedelta()) - (second.utcoffset() or timedelta())
        if gap >= timedelta():
            yield first
            if gap and not self._fixed:
                yield second
        elif self._fixed and -gap <= _LONGEST_GAP:
            yield self._end_of_gap(local, -gap)

    def _end_of_gap(self, local: datetime, gap: timedelta) -> datetime:
        """The moment at which the clock is moved on, found minute by minute: it never begins longer ago than it is wide."""
        moment = (local - gap).replace(tzinfo=self._zone).astimezone(UTC)
        while moment.astimezone(self._zone).replace(tzinfo=None) < local:
            moment += timedelta(minutes=1)
        return moment


@lru_cache(maxsize=1_024)
def _moments(expr: str, timezone: str) -> CronMoments:
    return CronMoments(expr, timezone)
