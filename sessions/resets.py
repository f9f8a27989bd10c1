"""Resets: the rules in force, and the transactions that start the farewell of a session and end it.

`sessions/policy.py` decides when a session is due, `gateway/scheduler/resets.py` ticks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, and_, exists, or_, select, text, update

from sessions import store
from sessions.db.engine import touch
from sessions.db.schema import RUN_ACTIVE, SESSION_OPEN, inbox, runs, sessions
from sessions.keys import InvalidKey, SessionKey
from sessions.policy import Override, ResetMode, ResetPolicy, ResetRules, due, policy_for
from sessions.processes import HAS_PROCESS
from sessions.records import EndReason
from sessions.runs import farewells
from sessions.runs.queries import Opening
from sessions.topics import Topic

GRACE_MS = 30 * 60_000
"""How long a reset waits for its farewell while the model is away."""
NEVER = ResetPolicy(mode=ResetMode.NONE)
_PAGE = 5_000


def rule_for(session_key: str, rules: ResetRules) -> tuple[ResetPolicy, Override | None]:
    """Returns the policy of a session key, and the override that it comes from. A key that an older version or another program wrote is never
    reset.
    """
    try:
        key = SessionKey.parse(session_key)
    except InvalidKey:
        return NEVER, None
    return policy_for(key, rules.default, rules.overrides)


class ResetPolicies:
    """The reset rules in force. `says_farewell`: whether the agent has the tools to save something before a reset. `rule`
    returns the policy of a session key, and the override that it comes from.
    """

    def __init__(self, rules: ResetRules, *, says_farewell: bool = True) -> None:
        self.rules = rules
        self.version = 0
        self.says_farewell = says_farewell
        self.rule = lru_cache(maxsize=10_000)(self._find)

    def replace(self, rules: ResetRules, *, says_farewell: bool) -> None:
        """Applies these rules from now on, also to sessions that are open."""
        self.says_farewell = says_farewell
        if rules != self.rules:
            self.rules = rules
            self.version += 1
            self.rule.cache_clear()

    def _find(self, session_key: str) -> tuple[ResetPolicy, Override | None]:
        return rule_for(session_key, self.rules)

    def policy(self, session_key: str) -> ResetPolicy:
        return self.rule(session_key)[0]

    def opening(self, session_key: str) -> Opening:
        """Returns how a message of this key opens a session."""
        policy = self.policy(session_key)
        return Opening(reset=None if policy.mode is ResetMode.NONE else policy, farewell=self.says_farewell)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """An active session, as far as resets look at it."""

    id: str
    session_key: str
    last_user_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSession:
    """`says_farewell`: its agent has the tools to save something."""

    session: OpenSession
    reason: EndReason
    says_farewell: bool = True


class ResetOutcome(StrEnum):
    ENDED = "ended"
    ENDED_OWING = "ended_owing"  # its farewell will be given later
    FAREWELL = "farewell"  # it has begun, or goes on
    HELD = "held"  # by a run, a process of the agent, or a message that nobody has taken up
    CHANGED = "changed"  # somebody has written, or it has ended


ENDS = (ResetOutcome.ENDED, ResetOutcome.ENDED_OWING)

_COLUMNS = (sessions.c.id, sessions.c.session_key, sessions.c.last_user_at)


def silent_since(
    conn: Connection, since: int, before: int, *, limit: int, after: tuple[int, str] = (-1, "")
) -> list[OpenSession]:
    """Returns active sessions whose last user message lies from `since` to before `before`, oldest first. `after`: the last one of the
    page before.
    """
    last, at = sessions.c.last_user_at, after[0]
    later = or_(last > at, and_(last == at, sessions.c.id > after[1]))
    query = select(*_COLUMNS).where(SESSION_OPEN, last >= since, last < before, later)
    return _found(conn, query.order_by(last, sessions.c.id).limit(limit))


def all_silent(conn: Connection, before: int) -> Iterator[OpenSession]:
    """Yields every active session whose last user message lies before this, oldest first."""
    after = (-1, "")
    while page := silent_since(conn, 0, before, limit=_PAGE, after=after):
        yield from page
        if len(page) < _PAGE:
            return
        after = (page[-1].last_user_at, page[-1].id)


def still_open(conn: Connection, session_ids: Sequence[str]) -> list[OpenSession]:
    query = select(*_COLUMNS).where(SESSION_OPEN, sessions.c.id.in_(session_ids), sessions.c.last_user_at.is_not(None))
    return _found(conn, query)


def _found(conn: Connection, query: Select[Any, Any, Any]) -> list[OpenSession]:
    return [OpenSession(id=row[0], session_key=row[1], last_user_at=row[2]) for row in conn.execute(query)]


_HAS_RUN = exists().where(RUN_ACTIVE, runs.c.session_key == sessions.c.session_key)
_HAS_UNREAD = exists().where(inbox.c.session_key == sessions.c.session_key, inbox.c.outcome.is_(None))


def carry_out(
    conn: Connection, wanted: Sequence[DueSession], now: int, *, at_once: bool = False
) -> dict[str, ResetOutcome]:
    """Gives each of these sessions its farewell, or ends it where that was given or is not needed. `at_once`: their messages wait for the
    next session, so they end now, and the farewell follows: it reads the session, and nobody else writes there. Returns session id → what
    became of it.
    """
    # Locks many keys as `lock` does, always in the same order.
    if conn.dialect.name != "sqlite":
        locks = "SELECT pg_advisory_xact_lock(hashtextextended(k, 0)) FROM unnest(CAST(:keys AS text[])) AS k"
        conn.execute(text(locks), {"keys": sorted(each.session.session_key for each in wanted)})
    by_id = {each.session.id: each for each in wanted}
    # The message that a session ends for has no run yet, and is unread itself.
    held = HAS_PROCESS if at_once else or_(_HAS_RUN, _HAS_UNREAD, HAS_PROCESS)
    columns = (*_COLUMNS, held.label("held"), farewells.IS_UNSAVED.label("unsaved"))
    rows = conn.execute(select(*columns).where(SESSION_OPEN, sessions.c.id.in_(by_id))).all()
    going_on = farewells.under_way_in(conn, list(by_id))
    found = dict.fromkeys(by_id, ResetOutcome.CHANGED)
    for row in rows:
        # Somebody may have written between the look and this transaction; then it is due no more.
        if row.last_user_at != by_id[row.id].session.last_user_at:
            continue
        began = going_on.get(row.id)
        if row.held:
            found[row.id] = ResetOutcome.HELD
        elif began is None and not (by_id[row.id].says_farewell and row.unsaved):
            found[row.id] = ResetOutcome.ENDED
        elif at_once or (began is not None and now - began >= GRACE_MS):
            found[row.id] = ResetOutcome.ENDED_OWING
        else:
            found[row.id] = ResetOutcome.FAREWELL
    owing = (ResetOutcome.FAREWELL, ResetOutcome.ENDED_OWING)
    new = {name: by_id[name].session.session_key for name, outcome in found.items() if outcome in owing}
    farewells.begin_all(conn, {name: key for name, key in new.items() if name not in going_on}, now)
    ended = [by_id[name] for name, outcome in found.items() if outcome in ENDS]
    for reason in {each.reason for each in ended}:
        some = [each.session.id for each in ended if each.reason is reason]
        ending = update(sessions).where(sessions.c.id.in_(some), SESSION_OPEN)
        conn.execute(ending.values(ended_at=store.end_time(now), end_reason=reason))
    for each in ended:
        touch(conn, Topic.KEY, each.session.session_key)
    return found


def before_message(conn: Connection, session_key: str, opening: Opening, came_at: int, now: int) -> int:
    """Ends the key's session when it was due as this message came, so that the message begins a new session. Returns for how many
    milliseconds the message has to wait for the farewell; 0: not at all. The key must have no active run.
    """
    session = store.active(conn, session_key) if opening.reset is not None else None
    if session is None or opening.reset is None or session.last_user_at is None:
        return 0
    # By the time when it came in: a message that a stopped daemon finds later is not late.
    reason = due(session.last_user_at, opening.reset, came_at)
    if reason is None:
        return 0
    found = OpenSession(id=session.id, session_key=session_key, last_user_at=session.last_user_at)
    wanted = DueSession(session=found, reason=reason, says_farewell=opening.farewell)
    if carry_out(conn, [wanted], now, at_once=True)[session.id] not in ENDS:
        return 0
    touch(conn, Topic.SESSION, session.id)  # what is left of it is folded now
    return farewells.WAIT_MS if farewells.holds_up(conn, session.id, now) else 0
