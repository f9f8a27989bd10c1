"""Decides when a session is reset (ResetPolicy, `due`): pure functions of the policy and the time of the last user message.

`sessions/resets.py` has the policies in force and carries resets out, `gateway/scheduler/resets.py` looks every few seconds for sessions that are due.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from zoneinfo import ZoneInfo

from sessions.clock import as_time
from sessions.keys import ChatKind, SessionKey
from sessions.records import EndReason


class ResetMode(StrEnum):
    IDLE = "idle"
    DAILY = "daily"
    BOTH = "both"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPolicy:
    mode: ResetMode = ResetMode.BOTH
    idle_minutes: int = 1440
    at_hour: int = 4
    timezone: str = "UTC"
    notify: bool = True

    def in_words(self) -> str:
        """Returns when the policy resets a session, as people say it."""
        idle, daily = f"idle after {self.idle_minutes} min", f"daily at {self.at_hour:02}:00 {self.timezone}"
        match self.mode:
            case ResetMode.IDLE:
                return idle
            case ResetMode.DAILY:
                return daily
            case ResetMode.BOTH:
                return f"{idle}, or {daily}"
            case ResetMode.NONE:
                return "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A change of the policy for some sessions; None leaves a value as it is. `key` may hold `*`."""

    key: str | None = None
    platform: str | None = None  # a platform, or api, cli, thread, job
    chat: ChatKind | None = None
    mode: ResetMode | None = None
    idle_minutes: int | None = None
    at_hour: int | None = None
    timezone: str | None = None
    notify: bool | None = None

    @property
    def specificity(self) -> int:
        if self.key is not None:
            return 4
        return (2 if self.platform is not None else 0) + (1 if self.chat is not None else 0)

    def over(self, default: ResetPolicy) -> ResetPolicy:
        """Returns the default policy with the values that are set here."""
        names = ("mode", "idle_minutes", "at_hour", "timezone", "notify")
        changed = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(default, **changed)

    def matches(self, key: SessionKey) -> bool:
        # Only * is a wildcard in a pattern; ids may hold the other special characters of fnmatch.
        if self.key is not None and not fnmatchcase(str(key), self.key.replace("[", "[[]").replace("?", "[?]")):
            return False
        if self.platform is not None and key.scope != self.platform:
            return False
        return self.chat is None or key.kind is self.chat


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRules:
    """All that the configuration says about resets."""

    default: ResetPolicy = field(default_factory=ResetPolicy)
    overrides: tuple[Override, ...] = ()

    def policies(self) -> frozenset[ResetPolicy]:
        """Every policy that a session may have."""
        return frozenset([self.default, *(override.over(self.default) for override in self.overrides)])


def policy_for(
    key: SessionKey, default: ResetPolicy, overrides: Sequence[Override]
) -> tuple[ResetPolicy, Override | None]:
    """Returns the policy of this key: the most specific override that matches, the first of equals. Sessions of no chat platform need one
    that names them.
    """
    fitting = [override for override in overrides if override.matches(key)]
    best = max(fitting, key=lambda override: override.specificity, default=None)
    # A session of the API or the terminal belongs to a program or a person at work: nobody resets it unasked.
    if key.platform is None and (best is None or (best.key is None and best.platform is None)):
        return replace(default, mode=ResetMode.NONE), None
    if best is None:
        return default, None
    return best.over(default), best


def due(last_user_at: int, policy: ResetPolicy, now: int) -> EndReason | None:
    """Returns the reason why a session with this last user message has to be reset by now; None: it has not."""
    if policy.mode in {ResetMode.IDLE, ResetMode.BOTH} and now > last_user_at + policy.idle_minutes * 60_000:
        return EndReason.IDLE
    if policy.mode in {ResetMode.DAILY, ResetMode.BOTH} and last_user_at < latest_hour(policy, now):
        return EndReason.DAILY
    return None


def due_before(policy: ResetPolicy, now: int) -> int | None:
    """Returns the time before which a last user message makes a session due; None: none is due."""
    moments: list[int] = []
    if policy.mode in {ResetMode.IDLE, ResetMode.BOTH}:
        moments.append(now - policy.idle_minutes * 60_000)
    if policy.mode in {ResetMode.DAILY, ResetMode.BOTH}:
        moments.append(latest_hour(policy, now))
    return max(moments, default=None)


def latest_hour(policy: ResetPolicy, now: int) -> int:
    """Returns the latest `at_hour:00` in the policy's time zone that is not after `now`."""
    return _latest_hour(policy.at_hour, policy.timezone, now // 60_000)  # hours begin with a minute


@lru_cache(maxsize=1_024)
def _latest_hour(at_hour: int, timezone: str, minute: int) -> int:
    policy, now = ResetPolicy(at_hour=at_hour, timezone=timezone), minute * 60_000
    zone = ZoneInfo(policy.timezone)
    today = as_time(now, zone).date()
    # Where a change of clocks skips that hour, its day's moment lies later than its name says, sometimes on the next day.
    day = today + timedelta(days=1)
    while (moment := _moment(policy, day, zone)) > now:
        day -= timedelta(days=1)
    return moment


def next_reset(last_user_at: int, policy: ResetPolicy, now: int) -> int | None:
    """Returns when the session will be due if nobody writes before; None: never."""
    moments: list[int] = []
    if policy.mode in {ResetMode.IDLE, ResetMode.BOTH}:
        # `due` asks for more than so many minutes, so it is due a millisecond later.
        moments.append(last_user_at + policy.idle_minutes * 60_000 + 1)
    if policy.mode in {ResetMode.DAILY, ResetMode.BOTH}:
        moments.append(_hour_after(policy, max(last_user_at, 0), now))
    return min(moments, default=None)


def _hour_after(policy: ResetPolicy, last_user_at: int, now: int) -> int:
    zone = ZoneInfo(policy.timezone)
    day = as_time(min(last_user_at, now), zone).date()
    while (moment := _moment(policy, day, zone)) <= last_user_at:
        day += timedelta(days=1)
    return moment


def _moment(policy: ResetPolicy, day: date, zone: ZoneInfo) -> int:
    return int(datetime.combine(day, time(policy.at_hour), zone).timestamp() * 1000)
