"""What an agent is to one run: its system prompt and its tools."""

from dataclasses import dataclass, field, replace

from gateway.agent.tools import WITH_SETTINGS
from gateway.agent.tools.registry import Toolbox
from gateway.context import App
from sessions.records import Run, RunKind, Session, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProfile:
    """The agent's system prompt and tools."""

    system_prompt: str
    toolbox: Toolbox = field(default_factory=Toolbox)
    approve: tuple[str, ...] = ()
    """Which calls need no approval; see `is_allowed`."""
    remembers: bool = True
    """False: nothing is known beyond the current session."""


def agent_named(app: App, name: str) -> AgentProfile:
    """Returns the profile of this agent as the configuration in force wants it; of the main one where there is none of this name."""
    agents, name = app.agents, name if name in app.config.agents else "main"
    profile = agents.get(name)
    if profile is None:
        agent, remembers = app.config.agents[name], app.config.memory.enabled
        absent = {*WITH_SETTINGS, *([] if remembers else ["memory"])}
        search = ["web_search"] if app.config.web.search else []
        toolbox = Toolbox.of([*(tool for tool in agent.tools if tool not in absent), *search])
        profile = AgentProfile(
            system_prompt=agent.system_prompt, toolbox=toolbox, remembers=remembers, approve=tuple(agent.approve)
        )
        # In the dictionary that was there before the configuration was read: a reload puts another one in its place.
        agents[name] = profile
    return profile


def profile_of(app: App, run: Run, session: Session) -> AgentProfile:
    """Returns the profile that this run's next step has."""
    profile = agent_named(app, session.agent)
    if app.mcp.tools:  # after our own, so that a small window leaves them out first
        profile = replace(profile, toolbox=Toolbox({**profile.toolbox.tools, **app.mcp.tools}))
    if run.kind is RunKind.JOB and run.deployment is None and (run.route is None or session.source == Source.JOB):
        # Nobody would see the question, or could answer it there.
        others = profile.toolbox.tools.keys() - {"ask_human"}
        profile = replace(profile, toolbox=profile.toolbox.only(others))
    prompt = run.options.system_prompt
    return replace(profile, system_prompt=prompt) if prompt else profile
