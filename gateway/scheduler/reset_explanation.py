"""Explains why and when sessions are reset: one session, or all that a policy would reset now."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest

from sqlalchemy import Connection

from gateway.texts import one_line
from sessions import inbox, processes, resets, runs, store
from sessions.keys import SessionKey
from sessions.policy import ResetPolicy, ResetRules, due, due_before, next_reset, policy_for
from sessions.records import EndReason, Role, RunStatus, Session
from sessions.runs import farewells


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`rule`: the index of the override that applies; None: none does. `passed_over`: those that match too, and are less specific.
    `next_at`: when the session will be reset if nobody writes before; None: never. `held_off`: what prevents it meanwhile."""

    session_key: str
    session: Session | None
    policy: ResetPolicy
    rule: int | None
    passed_over: tuple[int, ...]
    last_sender: str | None
    next_at: int | None
    reason: EndReason | None
    held_off: tuple[str, ...]
    owed: int

    @property
    def is_never_reset(self) -> bool:
        """Whether the session is in no chat, and no override names it."""
        return self.rule is None and SessionKey.parse(self.session_key).platform is None


def explain(conn: Connection, session_key: str, rules: ResetRules, now: int) -> Explanation:
    """Explains the resets of one key. Raises InvalidKey."""
    key = SessionKey.parse(session_key)
    policy, override = policy_for(key, rules.default, rules.overrides)
    matching = [index for index, each in enumerate(rules.overrides) if each.matches(key)]
    rule = next((index for index in matching if rules.overrides[index] is override), None)
    session = store.active(conn, session_key)
    last = session.last_user_at if session is not None else None
    said = store.last_messages(conn, session.id, 50) if session is not None else []
    return Explanation(
        session_key=session_key,
        session=session,
        policy=policy,
        rule=rule,
        passed_over=tuple(index for index in matching if index != rule),
        last_sender=next((each.sender for each in reversed(said) if each.role is Role.USER and each.sender), None),
        next_at=None if last is None else next_reset(last, policy, now),
        reason=None if last is None else due(last, policy, now),
        held_off=tuple(_held_off(conn, session_key)),
        owed=len(farewells.owed(conn, session_key)),
    )


def _held_off(conn: Connection, session_key: str) -> Iterator[str]:
    active = runs.active(conn, session_key)
    if active is not None:
        yield "a person’s answer" if active.status is RunStatus.WAITING else "a run at work"
    elif inbox.count_unread(conn, session_key):
        yield "a message that is not read yet"
    for process in processes.running(conn, session_key):
        yield f"process {process.id}: {one_line(process.command, 80)}"


def due_now(conn: Connection, rules: ResetRules, now: int) -> Counter[str]:
    """Counts the open sessions that are due by these rules, by platform or other scope of their keys."""
    # One query for all policies: the latest of their bounds; each session is then judged by its own.
    befores = [before for policy in rules.policies() if (before := due_before(policy, now)) is not None]
    found = resets.all_silent(conn, max(befores)) if befores else ()
    return Counter(
        SessionKey.parse(session.session_key).scope
        for session in found
        if due(session.last_user_at, resets.rule_for(session.session_key, rules)[0], now) is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NextReset:
    """When the conversation of this key starts afresh, if nobody writes there before."""

    session_key: str
    at: int


def next_resets(conn: Connection, rules: ResetRules, now: int, *, limit: int) -> list[NextReset]:
    """Returns the next resets, the first in front. Those that are due already are left out: the scheduler is at them, or something holds
    them off.
    """
    coming = (
        NextReset(session_key=session.session_key, at=at)
        for session in resets.all_silent(conn, now)
        if (at := next_reset(session.last_user_at, resets.rule_for(session.session_key, rules)[0], now)) and at > now
    )
    return nsmallest(limit, coming, key=lambda each: each.at)
