"""Every key of `config.yaml`. The docstrings are the reference: the schema, the editor's hover and the documentation show them.

Anything that depends on two keys at once is in `rules`, so that one mistake never hides another.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, create_model, field_validator
from pydantic_core import PydanticCustomError

from adapters.registry import OUR_OWN, manifest, of_others, section_model
from adapters.section import NO_SECRET, Id, PlatformSection, Section, Url
from gateway.agent.tools import BUILT, of_other_packages
from sessions import policy
from sessions.keys import ChatKind
from sessions.policy import Override, ResetPolicy, ResetRules

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
Scope = Literal["chat", "read", "admin"]
ResetMode = Literal["idle", "daily", "both", "none"]
NO_CHAT = ("cli", "api", "thread", "job")
PLANNED_TOOLS = ("memory", "session_search", "skill", "files", "schedule", "ask_human", "web_fetch", "process")
if TYPE_CHECKING:
    ToolName = SourceName = str
else:  # other packages bring names of their own
    ToolName = Literal[(*PLANNED_TOOLS, *of_other_packages())]
    SourceName = Literal[(*OUR_OWN, *NO_CHAT, *of_others())]
Positive = Annotated[int, Field(ge=1)]
Minutes = Annotated[int, Field(ge=1, le=5_256_000)]
Hour = Annotated[int, Field(ge=0, le=23)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _time_zone(name: str) -> str:
    try:
        if name:
            ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown name, "../x", and "Europe", which is a folder
        raise PydanticCustomError("time_zone", "no time zone") from None
    return name


def _database(address: SecretStr) -> SecretStr:
    scheme, separator, _ = address.get_secret_value().partition("://")
    if scheme and (not separator or scheme.partition("+")[0] not in {"postgresql", "postgres", "sqlite"}):
        raise PydanticCustomError("database", "no database")
    return address


TimeZone = Annotated[str, AfterValidator(_time_zone)]


def machine_timezone() -> str:
    try:
        name = Path("/etc/localtime").resolve().as_posix().partition("zoneinfo/")[2]
        ZoneInfo(name)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return "UTC"
    return name


class ModelSection(Section):
    """Which model thinks, and what may be asked of it. Without a name, the gateway looks for a model by itself."""

    provider: Literal["openai", "practice"] = "openai"
    """openai: any endpoint that speaks Chat Completions. practice: a built-in demo, works offline, is not a real AI."""
    base_url: Url = "https://api.openai.com/v1"
    """The endpoint. Everything that is said goes there."""
    api_key: SecretStr = NO_SECRET
    """The key of the endpoint. Empty for endpoints that ask for none."""
    name: str = ""
    """The model that answers. Empty: OPENAI_API_KEY or OPENROUTER_API_KEY if one is set, else a local Ollama, else practice."""
    fast: str = ""
    """A cheaper model that writes notes and summaries. Empty: the same as name."""
    fallbacks: list[Id] = Field(default_factory=list[Id])
    """Models that are tried in this order when name fails for good."""
    context_window: Annotated[int, Field(ge=2048)] = 128_000
    """How many tokens the model takes in. Not written: what the endpoint says, else 128000. Too large a number makes requests fail, too
    small a one makes it forget sooner."""
    max_output_tokens: Positive = 4096
    """Where an answer is cut. A quarter of the window at most."""
    timeout_seconds: Positive = 300
    """How long one request may take before it counts as failed and is tried again."""


class AgentSection(Section):
    """One character of the agent."""

    system_prompt: str = (
        "You are Hermes, a helpful assistant. Answer plainly and briefly. Say so when you do not know something."
    )
    """Who the agent is and how it speaks. It is sent with every request."""
    tools: list[ToolName] = Field(default_factory=lambda: [name for name in PLANNED_TOOLS if name in BUILT])
    """What the agent can do by itself; in a small window the last ones are left out first. process runs commands on this machine, each after your approval; it is off unless listed."""


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


class ApiKey(Section):
    """One key of the HTTP interface."""

    name: Name = ""
    """What the key is called in logs and session keys: letters, digits, _ and -. A new name is a new memory."""
    key: SecretStr = NO_SECRET
    """The key itself. 32 characters or more where api.host is not loopback."""
    scopes: list[Scope] = Field(default_factory=lambda: ["chat", "read"])
    """chat: converse. read: list, search, metrics. admin: jobs, deployments, delete, and everybody's deployments."""
    deployments: list[Id] = Field(default_factory=list[Id])
    """Deployments that the key may use besides those that it creates."""


class ApiSection(Section):
    """The HTTP interface, for programs and for the webhooks of platforms."""

    host: str = "127.0.0.1"
    """The address to listen on. Other machines reach the gateway if it is not loopback; then every key needs 32 characters."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8642
    """The port to listen on. 0: any that is free."""
    keys: list[ApiKey] = Field(default_factory=list[ApiKey])
    """Who may call. Empty: one key is generated into the file api_key of the home, for loopback only."""
    public_url: Url = ""
    """How the gateway is reached from outside, behind a proxy. Webhooks are registered under it."""
    allowed_hosts: list[Id] = Field(default_factory=list[Id])
    """Names that a request may have in its Host header besides loopback and public_url. Others are refused."""
    connections: Annotated[int, Field(ge=16)] = 1_000
    """How many connections may be open at once. Where all are taken, those without a key make way; a quarter is never given to keys."""
    connections_per_address: Positive = 500
    """How many connections one address may have open without a key. Its oldest makes way for its newest."""
    idle_seconds: Positive = 75
    """How long a connection with a key is kept between two requests; longer than a proxy in front keeps it. Without a key: 5 at most."""


class DatabaseSection(Section):
    """Where sessions are kept."""

    url: Annotated[SecretStr, AfterValidator(_database)] = NO_SECRET
    """Empty: SQLite in the home. postgresql://user:password@host/name: one database for several gateways."""


class EmbeddingsSection(Section):
    """Search by meaning beside search by words. Never needed: paraphrases are found by the questions that each note answers, and while
    the endpoint is away everything goes on without it."""

    base_url: Url = ""
    """An endpoint that speaks /v1/embeddings. Empty: search by words only. It is sent notes and questions."""
    api_key: SecretStr = NO_SECRET
    """The key of that endpoint."""
    model: str = ""
    """The model that embeds. When it changes, all notes are embedded anew, in the background."""


class MemorySection(Section):
    """What the agent remembers beyond the current conversation."""

    enabled: bool = True
    """true: the agent keeps facts, preferences, decisions and events. false: it knows the current session only."""
    embeddings: EmbeddingsSection = EmbeddingsSection()
    """Search by meaning beside search by words."""


class LimitsSection(Section):
    """Where the gateway stops, so that neither a loop nor a stranger can run up a bill or fill the disk."""

    steps_per_run: Positive = 60
    """How often the model may be called for one message before the run ends."""
    tokens_per_run: Positive = 1_000_000
    """How many tokens, in and out, one run may use before it ends."""
    seconds_per_run: Positive = 3600
    """How long a run may work before it ends. Waiting for a person does not count."""
    tokens_per_day: Annotated[int, Field(ge=0)] = 0
    """How many tokens all runs of a UTC day may use; then the agent says so and waits for the next. 0: no limit."""
    spend_per_day: Amount = 0.0
    """What all runs of a UTC day may cost, in the currency of the two prices below. 0: no limit."""
    price_per_million_input_tokens: Amount = 0.0
    """What your provider takes for a million tokens in. Used for spend_per_day only."""
    price_per_million_output_tokens: Amount = 0.0
    """What your provider takes for a million tokens out. Used for spend_per_day only."""
    parallel_runs: Positive = 32
    """How many conversations are worked on at once. One API key or platform alone gets three quarters; others wait in order."""
    message_bytes: Positive = 262_144
    """Longer messages are refused with a sentence."""
    answer_bytes: Positive = 1_048_576
    """Where an answer of the model is cut, which then says so. An endpoint that never ends its stream stops here."""
    queue_per_chat: Positive = 100
    """How many messages of one chat may wait. More are refused with a sentence."""
    attachment_bytes: Positive = 20_971_520
    """Larger files are not fetched; the agent is told their name and size."""
    jobs_per_creator: Positive = 50
    """How many jobs may be waiting that the agent has made in one chat, or for one API key. The command line and keys with the scope admin are
    not held by it."""
    jobs: Positive = 10_000
    """How many jobs there may be in all."""


class RetentionSection(Section):
    """How long things are kept, in days. 0: for ever."""

    sessions_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """Conversations that ended so long ago are deleted, with everything that was said in them."""
    files_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """Received files that are older are deleted from the inbox folders of the workspaces."""
    outbox_days: Annotated[int, Field(ge=0, le=36_500)] = 30
    """What is known of messages that were sent, or could not be delivered."""


class LogSection(Section):
    """What is written down about the gateway's own work. Message texts and secrets never are."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """debug: every step. info: three lines for each answer. warning and error: trouble only."""
    format: Literal["console", "json"] = "console"
    """console: lines for people; under systemd with the journal's priorities. json: one object a line, for programs."""
    file: bool = False
    """true: also into logs/ in the home, seven files of 10 MB. false: to standard error only."""


class VoiceSection(Section):
    """Turns voice messages into text. Without base_url the agent is told that there was a voice message."""

    base_url: Url = ""
    """An endpoint that speaks /audio/transcriptions as OpenAI does. Voice messages are sent there."""
    api_key: SecretStr = NO_SECRET
    """The key of that endpoint. Empty for endpoints that ask for none."""
    model: str = "whisper-1"
    """The model that listens."""


class PlatformsSection(Section):
    """Where people reach the agent: one section for each platform, with the keys that its adapter has."""

    def by_name(self) -> dict[str, PlatformSection]:
        return {name: getattr(self, name) for name in type(self).model_fields}


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
    database: DatabaseSection = DatabaseSection()
    """Where sessions are kept."""
    memory: MemorySection = MemorySection()
    """What is remembered."""
    limits: LimitsSection = LimitsSection()
    """Where it stops."""
    retention: RetentionSection = RetentionSection()
    """How long things are kept."""
    voice: VoiceSection = VoiceSection()
    """What turns voice messages into text."""
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
