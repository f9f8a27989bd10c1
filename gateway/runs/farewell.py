"""The farewell: a hidden last run before a reset, in which the agent saves what matters.

This file sets its prompt, tools and limits; its transactions are in `sessions/runs/farewells.py`.
"""

from collections.abc import Sequence
from dataclasses import replace

from gateway.agent.profile import AgentProfile
from gateway.agent.prompts import load_prompt
from gateway.config.sections import LimitsSection
from sessions.records import Message, MessageState, Role, Run

TOOLS = ("memory", "skill")
STEPS = 8
SECONDS = 120
"""How long one try may take; then it is tried again later."""
OWED_MS = 24 * 3_600_000
"""After so long a farewell that fails is given up. One whose model is away is not."""
_SHORTEST_PAUSE_MS, _LONGEST_PAUSE_MS = 30_000, 15 * 60_000


def as_farewell(profile: AgentProfile) -> AgentProfile:
    """Returns the agent's profile with the tools that save something, and no others."""
    return replace(profile, toolbox=profile.toolbox.only(TOOLS))


def limits_of(limits: LimitsSection) -> LimitsSection:
    """Returns the limits of a farewell: those of any run, with fewer steps."""
    return limits.model_copy(update={"steps_per_run": min(STEPS, limits.steps_per_run)})


def next_try(run: Run, now: int) -> int:
    """Returns when a farewell that failed is tried again; the pauses grow with its age."""
    return now + min(max(_SHORTEST_PAUSE_MS, (now - run.created_at) // 2), _LONGEST_PAUSE_MS)


def with_request(history: Sequence[Message], run: Run) -> list[Message]:
    """Inserts the request to say farewell before what this run has done already. The request itself is in no journal."""
    first = next((i for i, message in enumerate(history) if message.run_id == run.id), len(history))
    return [*history[:first], _request(run), *history[first:]]


def _request(run: Run) -> Message:
    return Message(
        id=0,  # it has no row
        session_id=run.session_id,
        run_id=run.id,
        role=Role.USER,
        content=load_prompt("farewell"),
        tool_calls=None,
        tool_call_id=None,
        tool_name=None,
        token_count=None,
        created_at=run.created_at,
        sender=None,
        attachments=(),
        state=MessageState.DONE,
        idem_key=None,
    )
