"""The sections of `config.yaml` that depend on no platform and no tool.

Every room reads its own section as it is. The docstrings are the reference: the schema, the editor's hover and the documentation show them.
"""

from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, StringConstraints
from pydantic_core import PydanticCustomError

from adapters.section import NO_SECRET, Id, Section, Url

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
PersonId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*:.+$")]
Scope = Literal["chat", "read", "approve", "admin"]
PersonScope = Literal["chat", "approve", "admin"]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Minutes = Annotated[int, Field(ge=1, le=5_256_000)]
Hour = Annotated[int, Field(ge=0, le=23)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _database(address: SecretStr) -> SecretStr:
    scheme, separator, _ = address.get_secret_value().partition("://")
    if scheme and (not separator or scheme.partition("+")[0] not in {"postgresql", "postgres", "sqlite"}):
        raise PydanticCustomError("database", "no database")
    return address


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


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches what listens on this host."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


KEY_LENGTH = 32
"""So many characters every key has where other machines reach the gateway."""


class ApiKey(Section):
    """One key of the HTTP interface."""

    name: Name = ""
    """What the key is called in logs and session keys: letters, digits, _ and -. A new name is a new memory."""
    key: SecretStr = NO_SECRET
    """The key itself. 32 characters or more where api.host is not loopback."""
    scopes: list[Scope] = Field(default_factory=lambda: ["chat", "read"])
    """chat: converse. read: list, search, metrics. approve: decide what tools may do. admin: jobs, deployments, delete, approve, and everybody's
    deployments."""
    deployments: list[Id] = Field(default_factory=list[Id])
    """Deployments that the key may use besides those that it creates."""
    tokens_per_day: Count = 0
    """How many tokens, in and out, calls with this key may use in a UTC day; then they get 429. 0: no limit."""
    messages_per_day: Count = 0
    """How many messages may be sent with this key in a UTC day. 0: no limit."""


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


class PersonSection(Section):
    """A person of a team: who they are on each platform, and what they may do. Once anybody is named here, people who are not may only chat;
    the owner of a platform always has every right."""

    name: Name = ""
    """What the person is called in the audit and in `hermes dashboard --for`: letters, digits, _ and -."""
    ids: list[PersonId] = Field(default_factory=list[PersonId])
    """Their ids, each with its platform, such as "slack:U1". They may talk to the agent as if they stood in allowed_users. The ids of one person
    share rights and limits, not conversations and memory."""
    scopes: list[PersonScope] = Field(default_factory=lambda: ["chat"])
    """chat: talk to the agent. approve: decide what its tools may do. admin: approve, and the page in the browser, where everybody's
    conversations are."""
    tokens_per_day: Count = 0
    """How many tokens, in and out, their messages may use in a UTC day. 0: as limits.person_tokens_per_day says."""
    messages_per_day: Count = 0
    """How many messages they may send in a UTC day. 0: as limits.person_messages_per_day says."""


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
    person_tokens_per_day: Count = 0
    """How many tokens, in and out, the messages of one person in the chats may use in a UTC day; then they are told when it goes on. 0: no
    limit."""
    person_messages_per_day: Count = 0
    """How many messages one person may send in a UTC day. 0: no limit."""
    jobs_per_creator: Positive = 50
    """How many jobs may be waiting that the agent has made in one chat, or for one API key. The command line and keys with the scope admin are
    not held by it."""
    jobs: Positive = 10_000
    """How many jobs there may be in all."""
    process_seconds: Positive = 600
    """How long a command of the tool process may run in the foreground, and how much time of a processor each of its processes may use. In the
    background no clock ends it."""
    process_memory_bytes: Annotated[int, Field(ge=16_777_216)] = 1_073_741_824
    """How much memory a command may use, with all that it starts. More ends it."""
    process_output_bytes: Annotated[int, Field(ge=1_024)] = 1_048_576
    """How much of what a command prints the agent reads at most: its beginning and its end. It never reads more than 15,000 bytes."""
    process_count: Positive = 64
    """How many processes a command may be at once. More ends it."""

    @property
    def counts_days(self) -> bool:
        """Whether anything is limited by the day."""
        return bool(self.tokens_per_day or self.spend_per_day)

    def reached(self, *, steps: int, tokens: int, seconds: float, today: tuple[int, int]) -> str | None:
        """Returns the limit that allows a run that has used this no further step, in words for a person; None: another step is allowed.
        `today`: tokens in and out of all runs of the day."""
        read, written = today
        price_in, price_out = self.price_per_million_input_tokens, self.price_per_million_output_tokens
        if self.tokens_per_day and read + written >= self.tokens_per_day:
            return f"{self.tokens_per_day:,} tokens a day"
        if self.spend_per_day and (read * price_in + written * price_out) / 1_000_000 >= self.spend_per_day:
            return f"{self.spend_per_day:g} a day"
        if steps >= self.steps_per_run:
            return f"{self.steps_per_run} steps"
        if tokens >= self.tokens_per_run:
            return f"{self.tokens_per_run:,} tokens"
        if seconds >= self.seconds_per_run:
            return f"{self.seconds_per_run // 60} minutes"
        return None


class RetentionSection(Section):
    """How long things are kept, in days. 0: for ever."""

    sessions_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """Conversations that ended so long ago are deleted, with everything that was said in them."""
    files_days: Annotated[int, Field(ge=0, le=36_500)] = 0
    """Received files that are older are deleted from the inbox folders of the workspaces."""
    outbox_days: Annotated[int, Field(ge=0, le=36_500)] = 30
    """What is known of messages that were sent, or could not be delivered."""
    audit_days: Annotated[int, Field(ge=0, le=36_500)] = 365
    """What `hermes audit` lists."""


class FilesSection(Section):
    """Where the files of the agent, received files and skills are, for several gateways on one PostgreSQL. With SQLite they are in the home."""

    store: Literal["database", "folder"] = "database"
    """database: in PostgreSQL too, so that each home gets what it needs. folder: in the home alone, where all homes are one shared folder."""


class LogSection(Section):
    """What is written down about the gateway's own work. Message texts and secrets never are."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """debug: every step. info: three lines for each answer. warning and error: trouble only."""
    format: Literal["console", "json"] = "console"
    """console: lines for people; under systemd with the journal's priorities. json: one object a line, for programs."""
    file: bool = False
    """true: also into logs/ in the home, seven files of 10 MB. false: to standard error only."""


class VoiceSection(Section):
    """Turns voice messages into text, and with speak also the answers to them into voice messages. Without base_url the agent is told that
    there was a voice message."""

    base_url: Url = ""
    """An endpoint that speaks /audio/transcriptions as OpenAI does. Voice messages are sent there."""
    api_key: SecretStr = NO_SECRET
    """The key of that endpoint. Empty for endpoints that ask for none."""
    model: str = "whisper-1"
    """The model that listens."""
    speak: bool = False
    """true: in chats, the answer to a voice message is a voice message too, with its text below it. base_url has to speak /audio/speech, with
    Opus in Ogg."""
    speak_model: str = ""
    """The model that speaks, such as gpt-4o-mini-tts."""
    speak_voice: str = "alloy"
    """The voice that it speaks with, by the endpoint's name for it."""


class WebSection(Section):
    """How the agent searches the web. Without search there is no web_search; web_fetch needs nothing of it."""

    search: Literal["", "searxng", "brave"] = ""
    """searxng: a server of your own, with the format json switched on. brave: the search API of Brave, with a key."""
    url: Url = ""
    """Where SearXNG answers. Brave needs none."""
    api_key: SecretStr = NO_SECRET
    """The key of Brave."""


class McpServerSection(Section):
    """A server of the Model Context Protocol: a program that is started here (command), or one that is reached over HTTP (url)."""

    command: str = ""
    """The program, which speaks over its standard input and output. It gets PATH, HOME, the locale and env."""
    args: list[str] = Field(default_factory=list[str])
    """Its arguments."""
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Variables of its environment, such as its keys."""
    url: Url = ""
    """Where the server answers over HTTP. Redirects to other hosts are not followed."""
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """What is sent with each request, such as Authorization."""
    tools: list[Id] = Field(default_factory=list[Id])
    """Only these of its tools are offered. Empty: all, up to 128."""
    approve: list[Id] = Field(default_factory=list[Id])
    """These are called without asking, by the names that the server gives them. Every other call needs an approval, unless a rule of
    agents.main.approve allows it."""
