"""When jobs are due: what people write, and the moments that it means. Pure."""

from sessions.schedules.schedule import Moments, Schedule, ScheduleKind, parse_schedule

__all__ = ["Moments", "Schedule", "ScheduleKind", "parse_schedule"]
