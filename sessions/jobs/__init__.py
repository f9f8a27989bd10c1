"""Jobs: prompts that are run when their time has come, each slot once. Every function is one step of a transaction: `(conn, …)`."""

from sessions.jobs.firing import (
    Fired,
    bring_forward,
    fire,
    is_pending,
    job_of_row,
    mark_ended,
    mark_owner_notified,
    mark_started,
    of_run,
)
from sessions.jobs.making import JobLimits, NewJob, change, create, new_job, pause, remove, resume, run_soon
from sessions.jobs.queries import due, failing, get, listing, local_results, slots, slots_with_output, upcoming
from sessions.jobs.records import LOCAL, Job, JobState, Slot, SlotOutcome, SlotStatus

__all__ = [
    "LOCAL",
    "Fired",
    "Job",
    "JobLimits",
    "JobState",
    "NewJob",
    "Slot",
    "SlotOutcome",
    "SlotStatus",
    "bring_forward",
    "change",
    "create",
    "due",
    "failing",
    "fire",
    "get",
    "is_pending",
    "job_of_row",
    "listing",
    "local_results",
    "mark_ended",
    "mark_owner_notified",
    "mark_started",
    "new_job",
    "of_run",
    "pause",
    "remove",
    "resume",
    "run_soon",
    "slots",
    "slots_with_output",
    "upcoming",
]
