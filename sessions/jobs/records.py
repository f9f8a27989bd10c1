"""Rows of jobs and of their slots."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from sqlalchemy import RowMapping

from sessions.errors import Invalid
from sessions.records import Route
from sessions.schedules import Moments, Schedule, ScheduleKind
from sessions.schedules.schedule import display

LOCAL = "local"
LONGEST_REST_MS = 3_600_000
"""After failures no job rests for longer."""
ID_LENGTH = 12
UNREADABLE = "The stored schedule of this job makes no sense. Delete it, and make it again."


class JobState(StrEnum):
    SCHEDULED = "scheduled"
    PAUSED = "paused"
    COMPLETED = "completed"  # no slot will come any more


class SlotOutcome(StrEnum):
    """How a slot was fired."""

    RAN = "ran"
    MADE_UP = "made_up"
    MISSED = "missed"
    MANUAL = "manual"  # a person wanted it now


class SlotStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"
    MISSED = "missed"


OPEN = (SlotStatus.QUEUED, SlotStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`ns`: whose memory its session has. `route`: where it was made; `deliver`: where its answers go. `run_soon_at`: a person wants it
    to run. `not_before`: after failures it rests until then."""

    id: str
    name: str
    prompt: str
    schedule: Schedule
    timezone: str
    repeat_times: int | None
    completed: int
    enabled: bool
    state: JobState
    created_at: int
    next_run_at: int | None
    last_run_at: int | None
    last_status: str | None
    last_error: str | None
    failures: int
    not_before: int | None
    run_soon_at: int | None
    told: bool
    deliver: str
    route: Route | None
    session_key: str
    ns: str | None
    deployment: str | None
    thread_id: str | None
    made_by: str | None

    @classmethod
    def from_row(cls, row: RowMapping) -> Self:
        """Returns the job. One whose row makes no sense is paused and says so: it can be seen and deleted, and hides no other."""
        values: dict[str, Any] = {each.name: row[each.name] for each in fields(cls)}
        values["enabled"], values["told"] = bool(row["enabled"]), bool(row["told"])
        try:
            values["schedule"] = Schedule.from_json(row["schedule"])
            values["state"] = JobState(row["state"])
            values["route"] = Route.from_json(row["route"]) if row["route"] else None
            job = cls(**values)
            job.moments.after(job.created_at)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, Invalid):
            never = Schedule(kind=ScheduleKind.ONCE, run_at=0)
            values |= {"schedule": never, "state": JobState.PAUSED, "route": None, "timezone": "UTC", "enabled": False}
            values |= {"next_run_at": None, "run_soon_at": None, "last_error": UNREADABLE}
            return cls(**values)
        return job

    @property
    def moments(self) -> Moments:
        return Moments(schedule=self.schedule, timezone=self.timezone, since=self.created_at)

    @property
    def schedule_display(self) -> str:
        return display(self.schedule, self.timezone)

    def dedup_key(self, slot: int) -> str:
        return f"job:{self.id}:{slot}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    id: int
    job_id: str
    slot: int
    dedup_key: str
    outcome: SlotOutcome
    status: SlotStatus
    run_id: str | None
    created_at: int
    started_at: int | None
    finished_at: int | None
    error: str | None

    @classmethod
    def from_row(cls, row: RowMapping) -> Self:
        values: dict[str, Any] = {each.name: row[each.name] for each in fields(cls)}
        values["outcome"], values["status"] = SlotOutcome(row["outcome"]), SlotStatus(row["status"])
        return cls(**values)
