"""A schedule: how it is kept, written and shown, and the moments that it means."""

import json
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from zoneinfo import ZoneInfo

from sessions.clock import LAST_MS, as_time
from sessions.errors import Invalid
from sessions.schedules.cron import NICKNAMES, CronMoments, normalized


class ScheduleKind(StrEnum):
    CRON = "cron"
    INTERVAL = "interval"
    ONCE = "once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`expr`: five cron fields. `minutes`: of an interval. `run_at`: of a one-shot, in milliseconds."""

    kind: ScheduleKind
    expr: str = ""
    minutes: int = 0
    run_at: int = 0

    def to_json(self) -> str:
        names = {ScheduleKind.CRON: "expr", ScheduleKind.INTERVAL: "minutes", ScheduleKind.ONCE: "run_at"}
        name = names[self.kind]
        return json.dumps({"kind": self.kind, name: getattr(self, name)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        stored: dict[str, Any] = json.loads(text)
        stored["kind"] = ScheduleKind(stored["kind"])
        return cls(**stored)


LONGEST_GRACE_MS = 3_600_000
"""A one-shot is made up when it is less than this late."""
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """`since`: when the job was made, from which intervals are counted."""

    schedule: Schedule
    timezone: str
    since: int

    def after(self, moment: int) -> int | None:
        """The first slot later than this; None: there is none."""
        match self.schedule.kind:
            case ScheduleKind.CRON:
                return CronMoments.of(self.schedule.expr, self.timezone).after(moment)
            case ScheduleKind.INTERVAL:
                return self.since + ((moment - self.since) // self._period + 1) * self._period
            case ScheduleKind.ONCE:
                return self.schedule.run_at if self.schedule.run_at > moment else None

    def last(self, moment: int, least: int) -> int:
        """The last slot that is not later than `moment`. `least` is a slot that is not later either."""
        match self.schedule.kind:
            case ScheduleKind.CRON:
                return CronMoments.of(self.schedule.expr, self.timezone).at_or_before(moment, least) or least
            case ScheduleKind.INTERVAL:
                return max(least, self.since + (moment - self.since) // self._period * self._period)
            case ScheduleKind.ONCE:
                return least

    def upcoming(self, moment: int, count: int = 3) -> list[int]:
        found: list[int] = []
        while len(found) < count and (following := self.after(found[-1] if found else moment)) is not None:
            found.append(following)
        return found

    def may_make_up(self, slot: int, moment: int) -> bool:
        """Whether a slot may still be run that late: less than half a period, or an hour for a one-shot."""
        following = self.after(slot)
        grace = LONGEST_GRACE_MS if following is None else (following - slot) / 2
        return moment - slot < grace

    @property
    def _period(self) -> int:
        return self.schedule.minutes * _MINUTE_MS


_SPAN = re.compile(
    r"(every\s+)?(\d{1,6})\s*(m|min|mins|minutes?|h|hrs?|hours?|d|days?|w|weeks?)", re.ASCII | re.IGNORECASE
)
_SECONDS = re.compile(r"(every\s+)?\d+\s*(s|secs?|seconds?)", re.ASCII | re.IGNORECASE)
_MINUTES = {"m": 1, "h": 60, "d": 1_440, "w": 10_080}
_MOST_MINUTES = 366 * 1_440
_HOW = (
    "Write five cron fields (0 9 * * 1), @daily and the like, every 30m, 30m (once, in 30 minutes), or a time such as"
    " 2030-01-31T09:00 (once)."
)


def require_zone(name: str) -> str:
    """The name of a time zone. Raises Invalid."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Invalid(f"{name!r} is no time zone. Write one such as Europe/London.") from None
    return name


def parse_schedule(text: str, timezone: str, now: int) -> Schedule:
    """Raises Invalid with what is wrong."""
    text = text.strip()
    if text.startswith("@"):
        if text.lower() not in NICKNAMES:
            raise Invalid(f"{text!r} is no schedule. Of this kind there are {', '.join(NICKNAMES)}.")
        return Schedule(kind=ScheduleKind.CRON, expr=NICKNAMES[text.lower()])
    if _SECONDS.fullmatch(text):
        raise Invalid(f"{text!r} is too often: the shortest interval is one minute, every 1m.")
    if (span := _SPAN.fullmatch(text)) is not None:
        minutes = int(span[2]) * _MINUTES[span[3][0].lower()]
        if not 1 <= minutes <= _MOST_MINUTES:
            raise Invalid(f"{text!r} is no interval. Allowed: from 1m to 366d.")
        if span[1]:
            return Schedule(kind=ScheduleKind.INTERVAL, minutes=minutes)
        return Schedule(kind=ScheduleKind.ONCE, run_at=now + minutes * 60_000)
    if re.match(r"\d{4}-\d\d-\d\d", text):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise Invalid(f"{text!r} is no time. {_HOW}") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=ZoneInfo(timezone))
        run_at = int(moment.timestamp() * 1000)
        if run_at > LAST_MS:
            raise Invalid(f"{text!r} is too far away. Write a time before the year 9999 ends.")
        if run_at <= now:
            raise Invalid(f"{text!r} is past. Write a time that is still to come.")
        return Schedule(kind=ScheduleKind.ONCE, run_at=run_at)
    if len(text.split()) < 5 and not re.search(r"[*/,]", text):
        raise Invalid(f"{text!r} is no schedule. {_HOW}")
    return Schedule(kind=ScheduleKind.CRON, expr=normalized(text))


def display(schedule: Schedule, timezone: str) -> str:
    """In words for people, without its time zone."""
    match schedule.kind:
        case ScheduleKind.CRON:
            from cron_descriptor import Options, get_description

            options = Options()
            options.use_24hour_time_format = True
            return get_description(schedule.expr, options)
        case ScheduleKind.INTERVAL:
            for name, minutes in (("week", 10_080), ("day", 1_440), ("hour", 60), ("minute", 1)):
                if schedule.minutes % minutes == 0:
                    count = schedule.minutes // minutes
                    return f"Every {name}" if count == 1 else f"Every {count} {name}s"
            raise AssertionError(schedule)
        case ScheduleKind.ONCE:
            moment = as_time(schedule.run_at, ZoneInfo(timezone))
            return f"Once, on {moment:%Y-%m-%d} at {moment:%H:%M}"
