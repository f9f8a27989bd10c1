"""The class App: the one object that `app.py` fills and every room gets.

It lies below all rooms, so it imports their types for type checking only. Beside it, the mark `every` of periodic work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sessions.clock import Clock, iso
from sessions.files import folder_name
from sessions.lease_owners import this_owner

if TYPE_CHECKING:
    from gateway.agent.memory.embeddings import Embeddings
    from gateway.agent.memory.fold_worker import FoldWorker
    from gateway.agent.models.interface import Model
    from gateway.agent.models.side_work import SideWork
    from gateway.agent.models.speech import Speaker
    from gateway.agent.profile import AgentProfile
    from gateway.agent.tokens import Tokens
    from gateway.agent.tools.mcp import McpServers
    from gateway.agent.tools.process import Processes
    from gateway.agent.tools.web import Web
    from gateway.api.http.callers import CallerKey
    from gateway.attachments.download import AttachmentDownloader
    from gateway.attachments.shared_files import SharedFiles
    from gateway.chats.access import AccessRules
    from gateway.chats.supervisor import PlatformSupervisor
    from gateway.config.model import Config
    from gateway.config.model_choice import ChosenModel
    from gateway.config.reading import Loaded
    from gateway.dispatch import Dispatch
    from gateway.dispatch.fair_queue import FairPlaces
    from gateway.dispatch.holders import Holders
    from gateway.maintenance import Maintenance
    from gateway.observe.health import DatabaseWatch, ReloadStatus, Standstills
    from gateway.observe.metrics import Metrics
    from gateway.runs.history import JournalTails, MemoryViews
    from gateway.runs.live import LiveEvents
    from gateway.runs.outages import ModelOutages
    from gateway.runs.worker import Worker
    from sessions.db import Database
    from sessions.jobs import JobLimits
    from sessions.resets import ResetPolicies


PromptBlocks = Mapping[str, tuple[int, int | None]]
"""Tokens of each block, and its budget where it has one."""
_KEPT_PROMPTS = 500
Work = TypeVar("Work", bound=Callable[..., Awaitable[object]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """How often a marked method is called, and what it is called in the log."""

    seconds: float
    name: str


def every(seconds: float, name: str) -> Callable[[Work], Work]:
    """Marks a method without parameters that the daemon calls so often, at its start for the first time; `scheduler/ticks.py` collects the
    marks. What it raises is logged, and does not end it.
    """

    def mark(work: Work) -> Work:
        work.every = Every(seconds=seconds, name=name)  # type: ignore[attr-defined]
        return work

    return mark


@dataclass(slots=True, kw_only=True)
class App:
    """What the rooms share. A reload replaces `loaded`, `chosen`, `model`, `agents` and `access`: read them where they are used, and keep no copy
    of them.

    `agents` and `access`: what was made of the configuration for an agent and for a platform, when it was first asked for; empty after a
    reload. `timezone`: the one that the process began with. `places`: at the model, shared by runs and calls without a session.
    `slot`: which of several processes of this home it is; `has_siblings`: there may be several. `owner`: this process, as the owner of leases. `keys`: who may call over HTTP; `local_key`: the one in the home, which counts while none is configured.
    `last_prompts`: what the last prompt of a namespace was made of, as far as this process made it.
    `files`: what keeps the files of a team the same everywhere; None where one home has them all. `attachments`, `speaker` and `chats`: what fetches files, what says answers aloud, and the platforms; None in a process that has none.
    """

    home: Path
    loaded: Loaded
    chosen: ChosenModel
    database: Database
    clock: Clock
    metrics: Metrics
    timezone: str
    tokens: Tokens
    live: LiveEvents
    tails: JournalTails
    views: MemoryViews
    outages: ModelOutages
    side_work: SideWork
    standstills: Standstills
    resets: ResetPolicies
    places: FairPlaces
    web: Web
    watch: DatabaseWatch
    reloads: ReloadStatus
    agents: dict[str, AgentProfile] = field(default_factory=dict)
    access: dict[str, AccessRules] = field(default_factory=dict)
    keys: Sequence[CallerKey] = ()
    local_key: CallerKey | None = None
    slot: int = 1
    has_siblings: bool = False
    owner: str = field(default_factory=this_owner)
    attachments: AttachmentDownloader | None = None
    files: SharedFiles | None = None
    speaker: Speaker | None = None
    chats: PlatformSupervisor | None = None
    # Made of the app itself, so `app.py` sets them when the rest is there.
    model: Model = field(init=False)
    last_prompts: OrderedDict[str, PromptBlocks] = field(default_factory=OrderedDict)
    former_models: list[Model] = field(default_factory=list)
    embeddings: Embeddings = field(init=False)
    dispatch: Dispatch = field(init=False)
    worker: Worker = field(init=False)
    folding: FoldWorker = field(init=False)
    upkeep: Maintenance = field(init=False)
    processes: Processes = field(init=False)
    holders: Holders = field(init=False)
    mcp: McpServers = field(init=False)

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.loaded.config

    @property
    def fast(self) -> str | None:
        """The model for notes and summaries; None: the one that answers."""
        return self.config.model.fast or None

    def today(self) -> str:
        """Returns the UTC day under which usage is counted now."""
        return iso(self.clock())[:10]

    def note_prompt(self, ns: str, blocks: PromptBlocks) -> None:
        """Keeps what the last prompt of this namespace was made of; the oldest of many are dropped."""
        self.last_prompts[ns] = blocks
        self.last_prompts.move_to_end(ns)
        if len(self.last_prompts) > _KEPT_PROMPTS:
            self.last_prompts.popitem(last=False)

    def job_limits(self) -> JobLimits:
        from sessions.jobs import JobLimits

        limits = self.config.limits
        return JobLimits(per_creator=limits.jobs_per_creator, total=limits.jobs)

    def parts(self) -> dict[str, dict[str, Any]]:
        """Returns the state of the database and of every platform, as /readyz and the status show it."""
        return {"database": self.watch.part(), **(self.chats.states() if self.chats is not None else {})}

    @property
    def workspaces(self) -> Path:
        return self.home / "workspace"

    def workspace(self, ns: str) -> Path:
        return self.workspaces / folder_name(ns)

    @property
    def tool_home(self) -> Path:
        """The home folder of commands and of servers that the agent's tools run."""
        return self.home / "tool-home"

    @property
    def skills(self) -> Path:
        return self.home / "skills"

    @property
    def outgoing(self) -> Path:
        return self.home / "outgoing"
