"""When jobs are due: what people write, and the moments that it means. Pure."""

from sessions.schedules.moments import LONGEST_GRACE_MS, Moments
from sessions.schedules.schedule import Schedule, ScheduleKind
from sessions.schedules.writing import parse_schedule

__all__ = ["LONGEST_GRACE_MS", "Moments", "Schedule", "ScheduleKind", "parse_schedule"]
