"""Deletes a job. Its conversation stays, as any other does."""

from sqlalchemy import Connection, delete, select

from sessions.db.schema import inbox, job_slots, jobs
from sessions.jobs.queries import get
from sessions.jobs.records import Job


def remove(conn: Connection, job_id: str) -> Job:
    """Deletes the job. What waits for its run is withdrawn; a run at work ends as it would. Raises NotFound."""
    job = get(conn, job_id)
    keys = select(job_slots.c.dedup_key).where(job_slots.c.job_id == job_id)
    conn.execute(delete(inbox).where(inbox.c.dedup_key.in_(keys), inbox.c.outcome.is_(None), inbox.c.run_id.is_(None)))
    conn.execute(delete(job_slots).where(job_slots.c.job_id == job_id))
    conn.execute(delete(jobs).where(jobs.c.id == job_id))
    return job
