"""Claims runs for a worker: a lease that runs out, and a fence that grows with every claim."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, and_, or_, select, update

from sessions import lease_owners
from sessions.db.schema import RUN_RUNNING, runs
from sessions.db.sql import lock, param
from sessions.records import Run, RunStatus
from sessions.runs.admission import start_for_oldest
from sessions.runs.queries import SUSPECT_TAKEOVERS, Opening, active, find, is_time

_RESTARTS = 100
"""So many of the newest are kept."""

_TAKE = (
    update(runs)
    .where(runs.c.id == param("run"))
    .values(
        lease_owner=param("by"),
        lease_until=param("until"),
        # Whoever worked on this run before can write no more, even if it is only slow and not dead.
        fence=runs.c.fence + 1,
        attempts=runs.c.attempts + param("took_over"),
        restarts=param("restarts"),
        updated_at=param("now"),
    )
    .returning(runs)
)
_TAKE_FREE = _TAKE.where(runs.c.fence == param("held"), RUN_RUNNING)


def claim(
    conn: Connection, session_key: str, owner: str, opening: Opening, now: int, *, lease_ms: int | None
) -> Run | None:
    """Take the run that this key has to do, under a lease and a new fence; start one for the oldest message that waits for it.

    `lease_ms` None: no lease, since the caller knows otherwise that nobody else works on the key, and that the owner lives.
    None: nothing to do, it waits for a human or for its time, or somebody else works on it. Runs that were interrupted some times
    without progress are suspects, and worked on one at a time: the one that takes the process down is then the only one that counts
    another interruption.
    """
    lock(conn, session_key)
    current = active(conn, session_key)
    if current is None:
        current = start_for_oldest(conn, session_key, opening, now)
    if current is None or current.status is not RunStatus.RUNNING or _is_held(conn, current, owner, now):
        return None
    if not is_time(current.wake_at, now):
        return None
    # `release` clears the owner, so a run that was given back in order counts no interruption.
    took_over = 0 if current.lease_owner is None else 1
    if _must_wait_its_turn(conn, current, took_over, now):
        return None
    values = _taking(current, took_over, owner, now, lease_ms)
    taken = Run.from_row(conn.execute(_TAKE, values).mappings().one())
    return replace(taken, away_ms=_unattended_ms(conn, current, now, lease_ms))


def _taking(run: Run, took_over: int, owner: str, now: int, lease_ms: int | None) -> dict[str, object]:
    """Returns the values of the statement that takes this run."""
    return {
        "run": run.id,
        "by": owner,
        "until": None if lease_ms is None else now + lease_ms,
        "took_over": took_over,
        "restarts": ((*run.restarts, now) if took_over else run.restarts)[-_RESTARTS:] or None,
        "now": now,
    }


_SUSPECTS = select(runs.c.lease_owner).where(
    RUN_RUNNING,
    runs.c.attempts >= SUSPECT_TAKEOVERS,
    runs.c.id != param("but"),
    or_(runs.c.lease_until > param("now"), and_(runs.c.lease_until.is_(None), runs.c.lease_owner.is_not(None))),
)


def _must_wait_its_turn(conn: Connection, run: Run, took_over: int, now: int) -> bool:
    """Returns whether this run is a suspect while another one is at work."""
    if run.attempts + took_over < SUSPECT_TAKEOVERS:
        return False
    at_work = conn.scalars(_SUSPECTS, {"but": run.id, "now": now})
    return any(not lease_owners.is_gone(conn, owner) for owner in at_work if owner is not None)


def _unattended_ms(conn: Connection, run: Run, now: int, lease_ms: int | None) -> int:
    """Returns since when a run that was begun, and was not put aside, has given no sign of life."""
    if run.fence == 0 or run.away_since is not None:
        return 0
    # A lease is renewed while somebody works, so its end tells when that was last the case.
    seen = run.updated_at
    if run.lease_until is not None and lease_ms is not None:
        seen = run.lease_until - lease_ms
    elif run.lease_owner is not None:
        seen = lease_owners.last_beat(conn, run.lease_owner) or seen
    return max(0, now - max(seen, run.updated_at))


def _is_held(conn: Connection, run: Run, owner: str, now: int) -> bool:
    if run.lease_owner is None or run.lease_until is None or run.lease_until <= now:
        return False
    # A process of this machine that is gone need not be waited for until its lease ends.
    return run.lease_owner != owner and not lease_owners.is_gone(conn, run.lease_owner)


def claim_farewell(conn: Connection, run_id: str, owner: str, now: int, *, lease_ms: int | None) -> Run | None:
    """Claims a farewell, which belongs to a session and leaves the key's own run alone."""
    current = find(conn, run_id)
    if current is None or current.status is not RunStatus.RUNNING or _is_held(conn, current, owner, now):
        return None
    took_over = 0 if current.lease_owner is None else 1
    if not is_time(current.wake_at, now) or _must_wait_its_turn(conn, current, took_over, now):
        return None
    # After the first look, since the key is known only then; the fence in the statement tells whether it is still true.
    lock(conn, current.session_key)
    values = _taking(current, took_over, owner, now, lease_ms)
    taken = conn.execute(_TAKE_FREE, {**values, "held": current.fence}).mappings().first()
    return None if taken is None else Run.from_row(taken)


def keep_alive(conn: Connection, run_ids: Sequence[str], owner: str, now: int, *, lease_ms: int) -> None:
    conn.execute(
        update(runs).where(runs.c.id.in_(run_ids), runs.c.lease_owner == owner).values(lease_until=now + lease_ms)
    )


def give_back(conn: Connection, run_id: str, fence: int) -> None:
    """Gives the run back unfinished, at a step's end: the next worker continues at once, and it counts as no takeover."""
    conn.execute(
        update(runs)
        .where(runs.c.id == run_id, runs.c.fence == fence, runs.c.status == RunStatus.RUNNING)
        .values(lease_owner=None, lease_until=None)
    )
