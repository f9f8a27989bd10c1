"""What depends on more than one key. `broken` keeps the daemon from starting, `doubtful` is only said."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_address

from adapters.registry import OUR_OWN, is_built, manifest, of_others
from gateway.agent.tokens import Tokens
from gateway.agent.tools import BUILT, of_other_packages
from gateway.agent.window import Window
from gateway.config.model import ApiKey, Config, ResetOverride
from gateway.config.problems import Path
from sessions.keys import ChatKind

KEY_LENGTH = 32
_NO_PLATFORM = ("cli", "api", "thread", "job")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    path: Path
    said: str
    hint: str
    also: tuple[Path, ...] = ()
    one_of: tuple[str, ...] = ()  # keys below `path`, one of which is missing


def broken(config: Config) -> Iterator[Finding]:
    yield from _model(config)
    yield from _memory(config)
    yield from _secrets(config)
    yield from _api(config)
    yield from _database(config)
    yield from _limits(config)
    yield from _overrides(config)


def doubtful(config: Config) -> Iterator[Finding]:
    yield from _cramped(config)
    yield from _not_built(config)
    yield from _unreachable(config)
    yield from _unmatched(config)
    yield from _alike(config)
    yield from _names(config)


def _model(config: Config) -> Iterator[Finding]:
    if "base_url" in config.model.model_fields_set and not config.model.name and config.model.provider != "practice":
        yield Finding(path=("model", "name"), said="missing", hint="name the model that answers at base_url")
    if _output_is_written(config) and config.model.max_output_tokens > config.model.context_window:
        hint = f"an answer is a part of the window: allowed up to {config.model.context_window}, best far less"
        yield Finding(path=("model", "max_output_tokens"), said="is larger than context_window", hint=hint)


def _memory(config: Config) -> Iterator[Finding]:
    embeddings = config.memory.embeddings
    if embeddings.base_url and not embeddings.model:
        yield Finding(
            path=("memory", "embeddings", "model"), said="missing", hint="name the model that embeds at base_url"
        )


def _output_is_written(config: Config) -> bool:
    return "max_output_tokens" in config.model.model_fields_set


def _cramped(config: Config) -> Iterator[Finding]:
    """What will be shortened so that all has room in the window."""
    model = config.model
    window = Window(size=model.context_window, output=model.max_output_tokens)
    if window.answer < model.max_output_tokens:
        key = "max_output_tokens" if _output_is_written(config) else "context_window"
        said = f"leaves answers {window.answer} tokens, not {model.max_output_tokens}"
        yield Finding(path=("model", key), said=said, hint="an answer gets a quarter of the window at most")
    for name, agent in config.agents.items():
        size, most = Tokens().text(agent.system_prompt), window.own_prompt(window.room * 2 // 3, window.fixed // 3)
        if size > most:
            said = f"is cut: about {size} tokens, and {most} fit into model.context_window"
            hint = "shorten it; only its first sentences are sent"
            yield Finding(path=("agents", name, "system_prompt"), said=said, hint=hint)


def _secrets(config: Config) -> Iterator[Finding]:
    for name, section in config.platforms.by_name().items():
        for key, why in manifest(name).missing(section).items() if section.enabled else ():
            yield Finding(path=("platforms", name, key), said="missing", hint=why)


def _api(config: Config) -> Iterator[Finding]:
    seen_names: dict[str, int] = {}
    seen_keys: dict[str, int] = {}
    for index, key in enumerate(config.api.keys):
        at = ("api", "keys", index)
        yield from _api_key(key, at, loopback=is_loopback(config.api.host))
        secret = key.key.get_secret_value()
        if key.name and (first := seen_names.setdefault(key.name, index)) != index:
            also = (("api", "keys", first, "name"),)
            yield Finding(path=(*at, "name"), said="used twice", hint="give every key a name of its own", also=also)
        if secret and (first := seen_keys.setdefault(secret, index)) != index:
            yield Finding(
                path=(*at, "key"), said="the same as another key", hint=f"see api.keys[{first}]; make a new one"
            )
    if not config.api.keys and not is_loopback(config.api.host):
        hint = f"other machines could reach it: add a key of {KEY_LENGTH} characters or more to api.keys, or write 127.0.0.1"
        yield Finding(path=("api", "host"), said="is not loopback, and no key is configured", hint=hint)


def _api_key(key: ApiKey, at: Path, *, loopback: bool) -> Iterator[Finding]:
    if not key.name:
        yield Finding(
            path=(*at, "name"), said="missing", hint="name the key, for example after the machine that uses it"
        )
    secret = key.key.get_secret_value()
    if not secret:
        yield Finding(path=(*at, "key"), said="missing", hint="write a key, best as ${NAME}")
    elif len(secret) < KEY_LENGTH and not loopback:
        said = f"is {len(secret)} long, and api.host is not loopback"
        yield Finding(path=(*at, "key"), said=said, hint=f"allowed: {KEY_LENGTH} characters or more")


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _database(config: Config) -> Iterator[Finding]:
    url = config.database.url.get_secret_value()
    scheme = url.partition("://")[0].partition("+")[0]
    if url and ("://" not in url or scheme not in {"postgresql", "postgres", "sqlite"}):
        yield Finding(
            path=("database", "url"),
            said="got another kind of address",
            hint="allowed: postgresql://..., or nothing for SQLite in the home",
        )


def _limits(config: Config) -> Iterator[Finding]:
    limits = config.limits
    if limits.spend_per_day and not (limits.price_per_million_input_tokens or limits.price_per_million_output_tokens):
        hint = "write price_per_million_input_tokens and price_per_million_output_tokens beside it"
        yield Finding(path=("limits", "spend_per_day"), said="cannot be kept without prices", hint=hint)


def _overrides(config: Config) -> Iterator[Finding]:
    for index, override in enumerate(config.session_reset.overrides):
        if not (override.key or override.platform or override.chat):
            path = ("session_reset", "overrides", index)
            said, hint = "says for no chat that it is meant", "add key, platform or chat"
            yield Finding(path=path, said=said, hint=hint, one_of=("key", "platform", "chat"))


def _not_built(config: Config) -> Iterator[Finding]:
    """Names that are good, but that this version cannot serve yet."""
    hint = "this version leaves it out; a later one will take it up"
    for name, section in config.platforms.by_name().items():
        if section.enabled and not is_built(name):
            yield Finding(path=("platforms", name, "enabled"), said=f"{name} does not work yet", hint=hint)
    for agent, section in config.agents.items():
        for index, tool in enumerate(section.tools):
            if tool not in (*BUILT, *of_other_packages()):
                path = ("agents", agent, "tools", index)
                yield Finding(path=path, said=f"the tool {tool} does not work yet", hint=hint)


def _unreachable(config: Config) -> Iterator[Finding]:
    for name, section in config.platforms.by_name().items():
        if not (section.enabled and is_built(name)) or config.api.public_url:
            continue
        registers_itself = "webhook_url" in manifest(name).config_keys  # elsewhere it is always done by hand
        if registers_itself and manifest(name).is_called(section):
            title = manifest(name).title
            hint = f"set api.public_url, or register the webhook at {title} by hand"
            yield Finding(path=("platforms", name, "mode"), said=f"{title} is not told where to call", hint=hint)


def _unmatched(config: Config) -> Iterator[Finding]:
    for index, override in enumerate(config.session_reset.overrides):
        path = ("session_reset", "overrides", index)
        if (why := _never(override)) is not None:
            yield Finding(path=path, said="can never match", hint=why)
        elif not override.model_fields_set - {"key", "platform", "chat"}:
            yield Finding(path=path, said="changes nothing", hint="add mode, idle_minutes, at_hour, timezone or notify")


def _never(override: ResetOverride) -> str | None:
    platform, chat = override.platform, override.chat
    if platform in _NO_PLATFORM and chat is not None:
        return f"{platform} sessions are in no chat; take chat out"
    if platform is not None and platform not in _NO_PLATFORM and chat is not None:
        kinds = manifest(platform).chat_kinds
        if ChatKind(chat) not in kinds:
            return f"{platform} has no chats of the kind {chat}; it has {', '.join(sorted(kinds))}"
    return _never_a_key(override.key, platform) if override.key else None


def _never_a_key(glob: str, platform: str | None) -> str | None:
    """Only the fixed text before the first wildcard is looked at."""
    fixed = glob[: min((glob.find(char) for char in "*?" if char in glob), default=len(glob))]
    parts = fixed.split(":")
    whole, last = parts[:-1], parts[-1]
    if not "agent:".startswith(fixed[:6]):
        return "session keys begin with agent: as in agent:main:telegram:dm"
    scopes = (platform,) if platform else (*OUR_OWN, *of_others(), *_NO_PLATFORM)
    if len(whole) > 2 and whole[2] not in scopes:
        return f"the key's third part must be {', '.join(scopes)}"
    if len(whole) == 2 and not any(scope.startswith(last) for scope in scopes):
        return f"the key's third part must be {', '.join(scopes)}"
    return None


def _alike(config: Config) -> Iterator[Finding]:
    overrides = list(enumerate(config.session_reset.overrides))
    for index, later in overrides:
        first = next((at for at, earlier in overrides[:index] if _same_chats(earlier, later)), None)
        if first is not None:
            also = (("session_reset", "overrides", first),)
            hint = "both match the same sessions and the first is used: keep one"
            path = ("session_reset", "overrides", index)
            yield Finding(path=path, said=f"as specific as overrides[{first}]", hint=hint, also=also)


def _same_chats(one: ResetOverride, other: ResetOverride) -> bool:
    if one.key and other.key:
        return _covers(one.key, other.key) or _covers(other.key, one.key)
    return (one.key, one.platform, one.chat) == (other.key, other.platform, other.chat)


def _covers(glob: str, key: str) -> bool:
    return fnmatchcase(key, glob.replace("[", "[[]"))


def _names(config: Config) -> Iterator[Finding]:
    for platform, section in config.platforms.by_name().items():
        for index, user in enumerate(section.allowed_users):
            if section.enabled and user.startswith("@"):
                hint = "write the id: names can be taken over by others. `hermes pair list` shows ids"
                yield Finding(
                    path=("platforms", platform, "allowed_users", index), said="is a name and never matches", hint=hint
                )
