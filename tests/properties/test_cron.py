"""The moments of a cron schedule are those of Debian's cron, minute by minute: an oracle written from crontab(5) and cron(8)."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from sessions.clock import iso
from sessions.errors import Invalid
from sessions.schedules import Moments, parse_schedule
from sessions.schedules.cron import CronMoments, normalized

MINUTE = 60_000
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
NAMES = (
    (),
    (),
    (),
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    ("sun", "mon", "tue", "wed", "thu", "fri", "sat"),
)
# Zones, each with a day near which its clocks change (or one on which they do not).
PLACES = [
    ("Europe/London", "2026-03-28"),
    ("Europe/London", "2026-10-24"),
    ("America/New_York", "2026-03-07"),
    ("America/New_York", "2026-10-31"),
    ("Australia/Lord_Howe", "2026-04-04"),
    ("Australia/Lord_Howe", "2026-10-03"),
    ("America/Santiago", "2026-04-04"),
    ("America/Santiago", "2026-09-05"),
    ("Africa/Cairo", "2026-04-23"),
    ("Africa/Cairo", "2026-10-29"),
    ("Asia/Kathmandu", "2026-02-27"),
    ("UTC", "2026-12-30"),
]
DAYS = 4


class Oracle:
    """Cron's main loop: a clock of its own in local minutes, which follows the machine's."""

    def __init__(self, expr: str, zone: str) -> None:
        fields = expr.split()
        self.zone = ZoneInfo(zone)
        self.sets = [set(self._values(field, i)) for i, field in enumerate(fields)]
        self.wild = fields[0].startswith("*") or fields[1].startswith("*")
        self.both = fields[2].startswith("*") or fields[4].startswith("*")

    def _values(self, field: str, i: int) -> Iterator[int]:
        for term in field.split(","):
            span, _, step = term.partition("/")
            first, _, last = span.partition("-")
            low, high = BOUNDS[i] if span == "*" else (self._number(first, i), self._number(last or first, i))
            for value in range(low, high + 1, int(step or 1)):
                yield value % 7 if i == 4 else value

    def _number(self, text: str, i: int) -> int:
        return NAMES[i].index(text) + (i == 3) if text in NAMES[i] else int(text)

    def _local(self, utc_minute: int) -> int:
        """Minutes since 1970 by the clock on the wall."""
        moment = datetime.fromtimestamp(utc_minute * 60, UTC)
        return utc_minute + int((moment.astimezone(self.zone).utcoffset() or timedelta()).total_seconds()) // 60

    def _matches(self, local_minute: int) -> bool:
        wall = datetime.fromtimestamp(local_minute * 60, UTC)
        minutes, hours, days, months, weekdays = self.sets
        by_day, by_weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
        on_day = (by_day and by_weekday) if self.both else (by_day or by_weekday)
        return wall.minute in minutes and wall.hour in hours and wall.month in months and on_day

    def runs(self, start: int, minutes: int) -> list[int]:
        """The UTC minutes after `start` at which it runs."""
        found: list[int] = []
        virtual = self._local(start)
        for now in range(start + 1, start + minutes + 1):
            wall = self._local(now)
            ran, virtual = self._wake(wall, virtual)
            if ran:
                found.append(now)
        return found

    def _wake(self, wall: int, virtual: int) -> tuple[bool, int]:
        behind = wall - virtual
        if 0 < behind <= 5:
            return any(self._matches(virtual + i) for i in range(1, behind + 1)), wall
        if 5 < behind <= 180:
            skipped = not self.wild and any(self._matches(virtual + i) for i in range(1, behind + 1))
            return skipped or (self.wild and self._matches(wall)), wall
        if -180 < behind <= 0:
            return self.wild and self._matches(wall), virtual
        return self._matches(wall), wall


def field(dice: random.Random, i: int) -> str:
    low, high = BOUNDS[i]
    one = dice.randint(low, high)
    first, last = sorted(dice.sample(range(low, high + 1), 2))
    step = dice.choice([2, 3, 5, 7, 15])
    shapes = ["*", str(one), f"{first}-{last}", f"*/{step}", f"{first}-{last}/{step}", f"{one},{first},{last}"]
    if NAMES[i]:
        shapes.append(dice.choice(NAMES[i]))
    weights = [3, 4, 2, 2, 1, 2, *([1] if NAMES[i] else [])]
    return dice.choices(shapes, weights)[0]


def expressions(count: int) -> Iterator[tuple[str, str, str]]:
    dice = random.Random(20260105)
    for number in range(count):
        days = ["*", "*", "*"] if dice.random() < 0.6 else [field(dice, i) for i in (2, 3, 4)]
        yield (" ".join([field(dice, 0), field(dice, 1), *days]), *PLACES[number % len(PLACES)])


def test_the_next_times_are_those_of_cron_minute_by_minute():
    compared = 0
    for expr, zone, day in expressions(120):
        try:
            moments = CronMoments.of(normalized(expr), zone)
        except Invalid:
            continue  # a month that has no such day
        start = int(datetime.fromisoformat(f"{day}T00:00+00:00").timestamp()) // 60
        expected = Oracle(expr, zone).runs(start, DAYS * 1_440)
        found, at = list[int](), start * MINUTE
        while (following := moments.after(at)) is not None and following <= (start + DAYS * 1_440) * MINUTE:
            found.append(following // MINUTE)
            at = following
        assert found == expected, f"{expr} in {zone}: {iso(min(set(found) ^ set(expected), default=0) * MINUTE)}"
        for each in expected[:3]:
            assert moments.at_or_before(each * MINUTE + 30_000, 0) == each * MINUTE
        compared += 1
    assert compared > 100


@pytest.mark.parametrize(
    ("expr", "zone", "after", "expected"),
    [
        ("0 9 * * 1", "UTC", "2026-01-01T00:00", ["2026-01-05T09:00", "2026-01-12T09:00"]),
        ("0 9 * * 0", "UTC", "2026-01-01T00:00", ["2026-01-04T09:00", "2026-01-11T09:00"]),
        ("0 9 * * 7", "UTC", "2026-01-01T00:00", ["2026-01-04T09:00", "2026-01-11T09:00"]),
        ("0 9 13 * 5", "UTC", "2026-02-10T00:00", ["2026-02-13T09:00", "2026-02-20T09:00"]),
        ("0 9 13 * 5", "UTC", "2026-01-10T00:00", ["2026-01-13T09:00", "2026-01-16T09:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("0 9 * jan,mar mon-wed", "UTC", "2026-01-28T12:00", ["2026-03-02T09:00", "2026-03-03T09:00"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
    ],
)
def test_times_that_people_ask_about(expr: str, zone: str, after: str, expected: list[str]):
    moments = CronMoments.of(normalized(expr), zone)
    at = int(datetime.fromisoformat(f"{after}+00:00").timestamp() * 1000)
    found: list[str] = []
    for _ in expected:
        following = moments.after(at)
        assert following is not None
        at = following
        found.append(iso(at)[:16])
    assert found == expected


def test_within_the_second_of_two_equal_hours_the_next_is_not_past():
    moments = CronMoments.of("30 1 * * *", "Europe/London")
    within = int(datetime(2026, 10, 25, 1, 10, tzinfo=UTC).timestamp() * 1000)  # 01:10 for the second time
    assert moments.after(within) == int(datetime(2026, 10, 26, 1, 30, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "is no schedule"),
        ("", "is no schedule"),
        ("* * * *", "has 4"),
        ("* * * * * *", "has 6"),
        ("0 0 30 2 *", "never comes"),
        ("60 * * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 9 0 * *", "day of the month"),
        ("0 9 * 13 *", "month"),
        ("0 9 * * 8", "weekday"),
        ("0 9 L * *", "day of the month"),
        ("0 9 * * 5L", "weekday"),
        ("0 9 * * 1#2", "weekday"),
        ("0 9 15W * *", "day of the month"),
        ("5/15 * * * *", "step"),
        ("*/0 * * * *", "step"),
        ("30-10 * * * *", "smaller first"),
        ("@reboot", "@daily"),
        ("every 0m", "interval"),
        ("30s", "one minute"),
        ("2001-01-01T00:00", "past"),
        ("2026-13-45", "no time"),
    ],
)
def test_nonsense_is_refused_with_the_reason(text: str, why: str):
    with pytest.raises(Invalid, match=why):
        parse_schedule(text, "UTC", 1_750_000_000_000)


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ("@daily", ["2025-06-16T00:00", "2025-06-17T00:00"]),
        ("every 30m", ["2025-06-15T15:36", "2025-06-15T16:06"]),
        ("every 2 hours", ["2025-06-15T17:06", "2025-06-15T19:06"]),
        ("30m", ["2025-06-15T15:36"]),
        ("1d", ["2025-06-16T15:06"]),
        ("2025-07-01T09:00+02:00", ["2025-07-01T07:00"]),
    ],
)
def test_what_people_may_write(text: str, slots: list[str]):
    now = 1_750_000_000_000
    moments = Moments(schedule=parse_schedule(text, "UTC", now), timezone="UTC", since=now)
    assert [iso(each)[:16] for each in moments.upcoming(now, 2)] == slots
