"""What runs are given: database, model, tools, limits."""

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
from gateway.observe.standstill import Standstills
from gateway.runs.budget import RunLimits
from gateway.runs.history import JournalTails
from gateway.runs.live_events import LiveEvents
from gateway.runs.memory_views import MemoryViews
from gateway.runs.outages import ModelOutages
from gateway.runs.reset_policies import NEVER, ResetPolicies
from sessions.clock import Clock, iso, now_ms
from sessions.db import Database
from sessions.policy import ResetRules
from sessions.records import Run, Session
from sessions.stored_files import StoredFile


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
    limits: Callable[[], RunLimits] = RunLimits
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
