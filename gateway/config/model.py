"""Every key of `config.yaml`. The docstrings are the reference: the schema, the editor's hover and the documentation show them.

Anything that depends on two keys at once is in `rules`, so that one mistake never hides another.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, StringConstraints, create_model, field_validator
from pydantic_core import PydanticCustomError

from adapters.registry import OUR_OWN, is_built, manifest, of_others, section_model
from adapters.section import PlatformSection, Section
from gateway.agent.tools import BUILT, WITH_SETTINGS, of_other_packages
from gateway.config.sections import (
    ApiSection,
    DatabaseSection,
    FilesSection,
    Hour,
    LimitsSection,
    LogSection,
    McpServerSection,
    MemorySection,
    Minutes,
    ModelSection,
    Name,
    PersonSection,
    RetentionSection,
    VoiceSection,
    WebSection,
)
from sessions import policy
from sessions.keys import ChatKind
from sessions.policy import Override, ResetPolicy, ResetRules

ResetMode = Literal["idle", "daily", "both", "none"]
NO_CHAT = ("cli", "api", "thread", "job")
if TYPE_CHECKING:
    ToolName = SourceName = str
else:  # other packages bring names of their own
    ToolName = Literal[(*BUILT, *WITH_SETTINGS, *of_other_packages())]
    SourceName = Literal[(*OUR_OWN, *NO_CHAT, *of_others())]


def _time_zone(name: str) -> str:
    try:
        if name:
            ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown name, "../x", and "Europe", which is a folder
        raise PydanticCustomError("time_zone", "no time zone") from None
    return name


TimeZone = Annotated[str, AfterValidator(_time_zone)]


def machine_timezone() -> str:
    try:
        name = Path("/etc/localtime").resolve().as_posix().partition("zoneinfo/")[2]
        ZoneInfo(name)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return "UTC"
    return name


Rule = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+: .+$")]


class AgentSection(Section):
    """One character of the agent."""

    system_prompt: str = (
        "You are Hermes, a helpful assistant. Answer plainly and briefly. Say so when you do not know something."
    )
    """Who the agent is and how it speaks. It is sent with every request."""
    tools: list[ToolName] = Field(default_factory=lambda: [name for name in BUILT if name != "process"])
    """What the agent can do by itself; in a small window the last ones are left out first. process runs commands on this machine, each after your approval; it is off unless listed."""
    approve: list[Rule] = Field(default_factory=list[Rule])
    """What needs no approval: "<tool>: <what the question shows>", such as "process: git status*". A * stands for any text that cannot begin
    another command."""


class ResetOverride(Section):
    """Another policy for some chats. The most specific match wins: key, then platform and chat, then platform, then chat.

    What is not written here is taken from session_reset itself.
    """

    key: str = ""
    """A session key, with * for any text. `hermes sessions list --json` shows the keys."""
    platform: SourceName | None = None
    """Sessions of this platform; cli, api, thread and job sessions are reset only if an override names them."""
    chat: Literal["dm", "group", "channel"] | None = None
    """Sessions of this kind of chat."""
    mode: ResetMode | None = None
    """As in session_reset."""
    idle_minutes: Minutes | None = None
    """As in session_reset."""
    at_hour: Hour | None = None
    """As in session_reset."""
    timezone: TimeZone | None = None
    """As in session_reset."""
    notify: bool | None = None
    """As in session_reset."""

    def rule(self) -> Override:
        return Override(
            key=self.key or None,
            platform=self.platform,
            chat=ChatKind(self.chat) if self.chat else None,
            mode=policy.ResetMode(self.mode) if self.mode else None,
            idle_minutes=self.idle_minutes,
            at_hour=self.at_hour,
            timezone=self.timezone or None,
            notify=self.notify,
        )


class SessionResetSection(Section):
    """When a conversation starts afresh. The old one stays searchable and can be resumed."""

    mode: ResetMode = "both"
    """idle: after a silence. daily: at an hour of the day. both: whichever comes first. none: never."""
    idle_minutes: Minutes = 1440
    """How long nobody must have written before an idle reset. Only messages of people count."""
    at_hour: Hour = 4
    """The hour of the daily reset, 0 to 23, in timezone."""
    timezone: TimeZone = ""
    """Where at_hour is meant, such as Europe/London. Empty: the time zone of this machine."""
    notify: bool = True
    """true: the first answer after a reset begins with one line that says why and how to go back."""
    overrides: list[ResetOverride] = Field(default_factory=list[ResetOverride])
    """Other policies for some chats."""

    @property
    def zone(self) -> str:
        """The configured time zone, else the machine's, else UTC."""
        return self.timezone or machine_timezone()

    def rules(self) -> ResetRules:
        """When sessions are reset."""
        default = ResetPolicy(
            mode=policy.ResetMode(self.mode),
            idle_minutes=self.idle_minutes,
            at_hour=self.at_hour,
            timezone=self.zone,
            notify=self.notify,
        )
        return ResetRules(default=default, overrides=tuple(each.rule() for each in self.overrides))


class PlatformsSection(Section):
    """Where people reach the agent: one section for each platform, with the keys that its adapter has."""

    def by_name(self) -> dict[str, PlatformSection]:
        return {name: getattr(self, name) for name in type(self).model_fields}

    def in_use(self) -> dict[str, PlatformSection]:
        """Returns those that are switched on and that this version has an adapter for."""
        return {name: section for name, section in self.by_name().items() if section.enabled and is_built(name)}


def _platforms_model(names: Iterable[str]) -> type[PlatformsSection]:
    sections: dict[str, Any] = {
        name: (model, Field(default=model(), description=f"{manifest(name).title}."))
        for name in names
        for model in (section_model(name),)
    }
    return create_model("PlatformsSection", __base__=PlatformsSection, **sections)


if TYPE_CHECKING:
    OurPlatforms = PlatformsSection
else:
    OurPlatforms = _platforms_model(OUR_OWN)


class Config(Section):
    """The configuration of hermes-gateway."""

    model: ModelSection = ModelSection()
    """Who thinks."""
    agents: dict[Name, AgentSection] = Field(default_factory=lambda: {"main": AgentSection()})
    """Who answers. main is the one in the chats and in the terminal."""
    session_reset: SessionResetSection = SessionResetSection()
    """When a conversation starts afresh."""
    platforms: OurPlatforms = OurPlatforms()
    """Where people reach the agent."""
    api: ApiSection = ApiSection()
    """How programs reach the agent."""
    people: list[PersonSection] = Field(default_factory=list[PersonSection])
    """Who may do what, for teams. Empty: everybody who has access may approve, too."""
    database: DatabaseSection = DatabaseSection()
    """Where sessions are kept."""
    files: FilesSection = FilesSection()
    """Where files are kept, for teams."""
    memory: MemorySection = MemorySection()
    """What is remembered."""
    limits: LimitsSection = LimitsSection()
    """Where it stops."""
    retention: RetentionSection = RetentionSection()
    """How long things are kept."""
    voice: VoiceSection = VoiceSection()
    """What turns voice messages into text."""
    web: WebSection = WebSection()
    """How the web is searched."""
    mcp_servers: dict[Name, McpServerSection] = Field(default_factory=dict[str, McpServerSection])
    """Tools that MCP servers bring. The agent has them as <server>_<tool>; they need not stand in tools."""
    log: LogSection = LogSection()
    """What is written down."""

    @field_validator("agents")
    @classmethod
    def _main_is_always_there(cls, agents: dict[str, AgentSection]) -> dict[str, AgentSection]:
        return {"main": AgentSection(), **agents}


@cache
def config_model(platforms: frozenset[str]) -> type[Config]:
    """The model for a file that names these platforms. Those of other packages are looked up; unknown ones stay unknown."""
    more = [name for name in of_others() if name in platforms] if platforms - set(OUR_OWN) else []
    if not more:
        return Config
    model = _platforms_model([*OUR_OWN, *more])
    return create_model("Config", __base__=Config, __doc__=Config.__doc__, platforms=(model, model()))
