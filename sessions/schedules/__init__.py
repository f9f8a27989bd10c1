"""When jobs are due: what people write, and the moments that it means. Pure."""

from sessions.schedules.moments import Moments
from sessions.schedules.schedule import Schedule, ScheduleKind
from sessions.schedules.writing import parse_schedule

__all__ = ["Moments", "Schedule", "ScheduleKind", "parse_schedule"]
