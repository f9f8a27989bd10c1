"""The slots of a schedule: when the next one is, which was the last, and how late it may be made up."""

from dataclasses import dataclass

from sessions.schedules.cron import CronMoments
from sessions.schedules.schedule import Schedule, ScheduleKind

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
