"""Jobs: prompts that are run when their time has come, each slot once. Every function is one step of a transaction: `(conn, …)`."""

from sessions.jobs.firing import Fired, begun, ended, fire, is_pending, opening_of, tell
from sessions.jobs.making import NewJob, change, create, new_job, pause, resume, run_soon
from sessions.jobs.queries import due, get, listing, slots, to_tell, upcoming
from sessions.jobs.records import Job, JobState, Slot, SlotOutcome, SlotStatus
from sessions.jobs.removing import remove

__all__ = [
    "Fired",
    "Job",
    "JobState",
    "NewJob",
    "Slot",
    "SlotOutcome",
    "SlotStatus",
    "begun",
    "change",
    "create",
    "due",
    "ended",
    "fire",
    "get",
    "is_pending",
    "listing",
    "new_job",
    "opening_of",
    "pause",
    "remove",
    "resume",
    "run_soon",
    "slots",
    "tell",
    "to_tell",
    "upcoming",
]
