"""Types of the run transitions: how a session is opened, what a message became, what a model answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sessions.call_options import CallOptions
from sessions.policy import ResetPolicy
from sessions.records import RunKind, RunStatus

MAX_TAKEOVERS = 5
SUSPECT_TAKEOVERS = 2
"""After so many interruptions without progress a run is worked on only while no other such run is."""
ACTIVE = (RunStatus.RUNNING, RunStatus.WAITING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What became of a message that came in. `fresh`: it was not here before. `joined`: a run was at work already."""

    fresh: bool
    run_id: str | None
    joined: bool = False
    status: RunStatus | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A model's answer as it goes into the journal. `tool_calls` are raw, as they go back to the model.

    `cut_off`: by the output limit. `withheld`: by the service's content filter, the whole or a part. `system_prompt`, `model_config`: with what
    the session begins; None where that is stored.
    """

    text: str
    tool_calls: Sequence[Mapping[str, Any]] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""
    day: str = ""
    cut_off: bool = False
    withheld: bool = False
    system_prompt: str | None = None
    model_config: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a session of this key is opened, and what its runs are for. `wait_ms`: a run begins that much later, because more is coming.
    `options` count before those of the message. `reset`: when the session before is reset; None: not now. `farewell`: the agent has the
    tools to save something before."""

    user_id: str | None = None
    model: str | None = None
    ns: str | None = None
    deployment: str | None = None
    thread_id: str | None = None
    kind: RunKind = RunKind.CHAT
    wait_ms: int = 0
    reset: ResetPolicy | None = None
    farewell: bool = True
    options: CallOptions = field(default_factory=CallOptions)
