"""What runs are given: database, model, tools, limits; and which models this process has found away."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from gateway.agent.memory.embeddings import Embeddings
from gateway.agent.models.interface import Model
from gateway.agent.tokens import Tokens
from gateway.agent.tools.registry import Toolbox
from gateway.agent.window import Window
from gateway.config.sections import LimitsSection
from gateway.observe.standstill import Standstills
from gateway.runs.history import JournalTails, MemoryViews
from gateway.runs.live import LiveEvents
from gateway.runs.reset_policies import NEVER, ResetPolicies
from sessions.clock import Clock, iso, now_ms
from sessions.db import Database
from sessions.jobs import JobLimits
from sessions.policy import ResetRules
from sessions.records import Run, Session
from sessions.stored_files import StoredFile

SHORTEST_PAUSE_MS = 10_000
LONGEST_PAUSE_MS = 60_000
TRY_MS = 60_000
"""How long one try may take before another run may try."""
GIVE_UP_MS = 30 * 60_000
GIVE_UP_MINUTES = GIVE_UP_MS // 60_000


@dataclass(slots=True)
class _Outage:
    since: int
    next_try_at: int
    why: str


class ModelOutages:
    """The models that this process found away, by the name that was wanted; None is the configured model. The pause between two tries
    grows.
    """

    def __init__(self) -> None:
        self._outages: dict[str | None, _Outage] = {}

    def known(self, model: str | None, now: int) -> str | None:
        """Returns why it is useless to ask now; None: ask. Of several callers at the time of a try, one gets None."""
        outage = self._outages.get(model)
        if outage is None:
            return None
        if now < outage.next_try_at <= now + TRY_MS:  # later than that: the clock was set back
            return outage.why
        outage.next_try_at = now + TRY_MS
        return None

    def current(self) -> tuple[int, str] | None:
        """Returns since when a model has been away, and why; the longest outage of several. None: all answer, as far as is known."""
        longest = min(self._outages.values(), key=lambda outage: outage.since, default=None)
        return None if longest is None else (longest.since, longest.why)

    def mark_away(self, model: str | None, why: str, now: int) -> None:
        """Notes that the model could not be reached."""
        outage = self._outages.setdefault(model, _Outage(since=now, next_try_at=now, why=why))
        outage.why = why
        # A quarter of the outage so far: a short one ends soon, a long one is not asked about every ten seconds.
        outage.next_try_at = now + min(max(SHORTEST_PAUSE_MS, (now - outage.since) // 4), LONGEST_PAUSE_MS)

    def next_try(self, model: str | None, now: int) -> int:
        """Returns when a sleeping run should try the model again."""
        outage = self._outages.get(model)
        wanted = now + SHORTEST_PAUSE_MS if outage is None else outage.next_try_at
        return min(max(wanted, now + SHORTEST_PAUSE_MS // 10), now + LONGEST_PAUSE_MS)

    def mark_back(self, model: str | None) -> bool:
        """Notes that the model has answered. Returns True when it was away before."""
        return self._outages.pop(model, None) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProfile:
    """The agent's system prompt and tools."""

    system_prompt: str
    toolbox: Toolbox = field(default_factory=Toolbox)
    model: str | None = None
    remembers: bool = True
    """False: nothing is known beyond the current session."""


SettleFile = Callable[[StoredFile, Path], Awaitable[tuple[StoredFile, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that a run needs. `profile` is called for every step, so that a new configuration counts from the
    next step on."""

    home: Path
    database: Database
    model: Callable[[], Model]
    profile: Callable[[Run, Session], AgentProfile]
    limits: Callable[[], LimitsSection] = LimitsSection
    window: Callable[[str | None], Window] = lambda _: Window()
    tokens: Tokens = field(default_factory=Tokens)
    live: LiveEvents = field(default_factory=LiveEvents)
    tails: JournalTails = field(default_factory=JournalTails)
    views: MemoryViews = field(default_factory=MemoryViews)
    outages: ModelOutages = field(default_factory=ModelOutages)
    clock: Clock = now_ms
    standstills: Standstills = field(default_factory=Standstills)
    model_config: Callable[[], Mapping[str, Any]] = dict
    """What is configured about the model, without secrets."""
    fast: Callable[[], str | None] = lambda: None
    """The model for summaries; None: the one that answers."""
    timezone: str = "UTC"
    settle_file: SettleFile | None = None
    """Fetches and saves one attachment into this folder; gives it back with its place, and a line for the model."""
    embeddings: Embeddings | None = None
    resets: ResetPolicies = field(default_factory=lambda: ResetPolicies(ResetRules(default=NEVER)))
    run_ended: Callable[[str], None] = lambda _: None
    tool_ran: Callable[[str, str, float], None] = lambda _, __, ___: None

    def today(self) -> str:
        """Returns the UTC day under which usage is counted now."""
        return iso(self.clock())[:10]

    def job_limits(self) -> JobLimits:
        limits = self.limits()
        return JobLimits(per_creator=limits.jobs_per_creator, total=limits.jobs)

    def workspace(self, ns: str) -> Path:
        return self.workspaces / folder_name(ns)

    @property
    def workspaces(self) -> Path:
        return self.home / "workspace"

    @property
    def skills(self) -> Path:
        return self.home / "skills"

    @property
    def outgoing(self) -> Path:
        return self.home / "outgoing"


def folder_name(ns: str) -> str:
    """Returns a namespace as a readable folder name that cannot lead out of its parent. No two namespaces have the same."""
    safe = "".join(
        char if char.isascii() and (char.isalnum() or char in "-_.:@+") else f"%{ord(char):02X}" for char in ns
    )
    # File names end at 255 bytes; a shortened one gets a digest, so that two long namespaces stay apart.
    name = safe if len(safe) <= 200 else f"{safe[:160]}%{_digest(ns)}"
    return name if name.strip(".") else f"%{_digest(ns)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=12).hexdigest()
