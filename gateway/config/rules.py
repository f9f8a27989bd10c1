"""Rules that depend on more than one key. `errors` keep the daemon from starting, `warnings` are only shown."""

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import NamedTuple

from adapters.registry import OUR_OWN, is_built, manifest, of_others
from gateway.agent.tokens import Tokens
from gateway.agent.tools import BUILT, WITH_SETTINGS, mcp_tool_name, of_other_packages
from gateway.agent.window import Window
from gateway.config.model import NO_CHAT, Config, ResetOverride
from gateway.config.sections import KEY_LENGTH, is_loopback
from sessions.keys import ChatKind, Platform


class Finding(NamedTuple):
    """`path`: the key as people write it. `also`: other keys that it is about. `one_of`: names of keys below `path`, one of which is missing."""

    path: str
    said: str
    hint: str
    also: str = ""
    one_of: tuple[str, ...] = ()


Rule = Callable[[Config], Iterator[Finding]]
_ERRORS: list[Rule] = []
_WARNINGS: list[Rule] = []


def error(rule: Rule) -> Rule:
    """Marks a rule whose findings keep the daemon from starting."""
    _ERRORS.append(rule)
    return rule


def warning(rule: Rule) -> Rule:
    """Marks a rule whose findings are only shown."""
    _WARNINGS.append(rule)
    return rule


def errors(config: Config, owners: Mapping[str, str]) -> Iterator[Finding]:
    """`owners`: the stored owner of each platform."""
    for rule in _ERRORS:
        yield from rule(config)
    for name in lists_without_owner(config):
        allowed = [manifest(name).normal_user_id(user) for user in config.platforms.by_name()[name].allowed_users]
        owner = owners.get(name)
        if owner is None or owner in allowed or "*" in allowed:
            continue
        said = f"leaves out {owner}, who is the owner"
        hint = (
            f'owner: "{owner}" beside it gives {allowed[0]} a memory of their own. '
            f'owner: "{allowed[0]}" lets {allowed[0]} read the notes, sessions and jobs of {owner}'
        )
        yield Finding(f"platforms.{name}.allowed_users", said, hint)


def warnings(config: Config) -> Iterator[Finding]:
    for rule in _WARNINGS:
        yield from rule(config)


@error
def model(config: Config) -> Iterator[Finding]:
    model = config.model
    if "base_url" in model.model_fields_set and not model.name and model.provider != "practice":
        yield Finding("model.name", "missing", "name the model that answers at base_url")
    if _output_is_written(config) and model.max_output_tokens > model.context_window:
        hint = f"an answer is a part of the window: allowed up to {model.context_window}, best far less"
        yield Finding("model.max_output_tokens", "is larger than context_window", hint)


def _output_is_written(config: Config) -> bool:
    return "max_output_tokens" in config.model.model_fields_set


@error
def memory(config: Config) -> Iterator[Finding]:
    embeddings = config.memory.embeddings
    if embeddings.base_url and not embeddings.model:
        yield Finding("memory.embeddings.model", "missing", "name the model that embeds at base_url")


@error
def web(config: Config) -> Iterator[Finding]:
    match config.web.search:
        case "searxng" if not config.web.url:
            yield Finding("web.url", "missing", "say where your SearXNG answers, such as http://127.0.0.1:8888")
        case "brave" if not config.web.api_key.get_secret_value():
            yield Finding("web.api_key", "missing", "the search API of Brave wants a key")
        case _:
            pass


@error
def voice(config: Config) -> Iterator[Finding]:
    if config.voice.speak and not config.voice.base_url:
        yield Finding("voice.base_url", "missing", "say where the endpoint is that speaks")
    if config.voice.speak and not config.voice.speak_model:
        yield Finding("voice.speak_model", "missing", "name the model that speaks, such as gpt-4o-mini-tts")


@error
def mcp(config: Config) -> Iterator[Finding]:
    for name, server in config.mcp_servers.items():
        here = f"mcp_servers.{name}"
        if not (server.command or server.url):
            yield Finding(here, "names no server", "add command or url", one_of=("command", "url"))
        elif server.command and server.url:
            yield Finding(f"{here}.url", "beside command", "keep one of them", also=f"{here}.command")
        for key in ("args", "env") if server.url and not server.command else ():
            if getattr(server, key):
                yield Finding(f"{here}.{key}", "without command", "a server at a url gets headers; take it out")
        if server.headers and not server.url:
            yield Finding(f"{here}.headers", "without url", "a program gets env; take it out")
        for header, value in server.headers.items():
            if not _HEADER.fullmatch(header) or not _HEADER_VALUE.fullmatch(value.get_secret_value()):
                yield Finding(
                    f"{here}.headers.{header}", "is no header", "a name, and a value of ASCII characters in one line"
                )


_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HEADER_VALUE = re.compile(r"[ -~]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@error
def secrets(config: Config) -> Iterator[Finding]:
    for name, section in config.platforms.by_name().items():
        for key, why in manifest(name).missing(section).items() if section.enabled else ():
            yield Finding(f"platforms.{name}.{key}", "missing", why)


def lists_without_owner(config: Config) -> Iterator[str]:
    """The platforms on which the owner's conversation would be that of whoever is taken for the owner, and `owner` names nobody."""
    for name, section in config.platforms.by_name().items():
        # Every chat of WhatsApp has a conversation of its own.
        shares_memory = section.dm_scope == "owner" and name != Platform.WHATSAPP
        if section.enabled and shares_memory and section.allowed_users and not section.owner:
            yield name


@error
def api(config: Config) -> Iterator[Finding]:
    loopback, keys = is_loopback(config.api.host), config.api.keys
    names, secrets = [key.name for key in keys], [key.key.get_secret_value() for key in keys]
    for at, (name, secret) in enumerate(zip(names, secrets, strict=True)):
        here, first = f"api.keys[{at}]", f"api.keys[{names.index(name)}]"
        if not name:
            yield Finding(f"{here}.name", "missing", "name the key, for example after the machine that uses it")
        elif first != here:
            yield Finding(f"{here}.name", "used twice", "give every key a name of its own", also=f"{first}.name")
        if not secret:
            yield Finding(f"{here}.key", "missing", "write a key, best as ${NAME}")
        elif len(secret) < KEY_LENGTH and not loopback:
            said = f"is {len(secret)} long, and api.host is not loopback"
            yield Finding(f"{here}.key", said, f"allowed: {KEY_LENGTH} characters or more")
        if secret and secrets.index(secret) < at:
            hint = f"see api.keys[{secrets.index(secret)}]; make a new one"
            yield Finding(f"{here}.key", "the same as another key", hint)
    if not keys and not loopback:
        hint = f"other machines could reach it: add a key of {KEY_LENGTH} characters or more to api.keys, or write 127.0.0.1"
        yield Finding("api.host", "is not loopback, and no key is configured", hint)


@error
def people(config: Config) -> Iterator[Finding]:
    """Each person has a name of their own, and each id one person."""
    names, ids = dict[str, str](), dict[str, str]()
    platforms = config.platforms.by_name()
    for number, person in enumerate(config.people):
        here = f"people[{number}]"
        if not person.name:
            yield Finding(here, "has no name", "give the person a name", one_of=("name",))
        elif person.name in names:
            yield Finding(
                f"{here}.name", "is there twice", "give each person a name of their own", also=names[person.name]
            )
        names.setdefault(person.name, f"{here}.name")
        for place, each in enumerate(person.ids):
            path, (platform, _, user) = f"{here}.ids[{place}]", each.partition(":")
            if platform not in platforms:
                yield Finding(path, f"{platform} is no platform", f"one of {', '.join(platforms)}, as in slack:U1")
                continue
            normal = f"{platform}:{manifest(platform).normal_user_id(user)}"
            if user == "*":
                yield Finding(path, "is everybody", "name one person; allowed_users may be open to all")
            elif normal in ids:
                yield Finding(path, "is there twice", "an id belongs to one person", also=ids[normal])
            ids.setdefault(normal, path)


@error
def limits(config: Config) -> Iterator[Finding]:
    limits = config.limits
    if limits.spend_per_day and not (limits.price_per_million_input_tokens or limits.price_per_million_output_tokens):
        hint = "write price_per_million_input_tokens and price_per_million_output_tokens beside it"
        yield Finding("limits.spend_per_day", "cannot be kept without prices", hint)


@error
def overrides(config: Config) -> Iterator[Finding]:
    for at, override in enumerate(config.session_reset.overrides):
        if not (override.key or override.platform or override.chat):
            said, hint = "says for no chat that it is meant", "add key, platform or chat"
            yield Finding(f"session_reset.overrides[{at}]", said, hint, one_of=("key", "platform", "chat"))


@warning
def cramped(config: Config) -> Iterator[Finding]:
    """What will be shortened so that all has room in the window."""
    model = config.model
    window = Window(size=model.context_window, output=model.max_output_tokens)
    if window.answer < model.max_output_tokens:
        key = "max_output_tokens" if _output_is_written(config) else "context_window"
        said = f"leaves answers {window.answer} tokens, not {model.max_output_tokens}"
        yield Finding(f"model.{key}", said, "an answer gets a quarter of the window at most")
    for name, agent in config.agents.items():
        size, most = Tokens().text(agent.system_prompt), window.own_prompt(window.room * 2 // 3, window.fixed // 3)
        if size > most:
            said = f"is cut: about {size} tokens, and {most} fit into model.context_window"
            yield Finding(f"agents.{name}.system_prompt", said, "shorten it; only its first sentences are sent")


@warning
def not_built(config: Config) -> Iterator[Finding]:
    """Names that are good, but that this version cannot serve yet."""
    hint = "this version leaves it out; a later one will take it up"
    for name, section in config.platforms.by_name().items():
        if section.enabled and not is_built(name):
            yield Finding(f"platforms.{name}.enabled", f"{name} does not work yet", hint)


@warning
def unreachable(config: Config) -> Iterator[Finding]:
    for name, section in config.platforms.by_name().items():
        if not (section.enabled and is_built(name)) or config.api.public_url:
            continue
        registers_itself = "webhook_url" in manifest(name).config_keys  # elsewhere it is always done by hand
        if registers_itself and manifest(name).is_called(section):
            title = manifest(name).title
            hint = f"set api.public_url, or register the webhook at {title} by hand"
            yield Finding(f"platforms.{name}.mode", f"{title} is not told where to call", hint)


@warning
def without_effect(config: Config) -> Iterator[Finding]:
    """Times of a reset that the mode beside them does not use."""
    rules = [("session_reset", config.session_reset)]
    rules += [(f"session_reset.overrides[{at}]", each) for at, each in enumerate(config.session_reset.overrides)]
    for path, rule in rules:
        unused = {"none": ("idle_minutes", "at_hour"), "idle": ("at_hour",), "daily": ("idle_minutes",)}
        for key in unused.get(rule.mode or "", ()) if "mode" in rule.model_fields_set else ():
            # As it is by default, it was written by `config init` and says nothing about what somebody wants.
            if getattr(rule, key) != type(rule).model_fields[key].default:
                yield Finding(f"{path}.{key}", f"has no effect with mode: {rule.mode}", "take it out, or change mode")


@warning
def unmatched(config: Config) -> Iterator[Finding]:
    for at, override in enumerate(config.session_reset.overrides):
        path = f"session_reset.overrides[{at}]"
        if (why := _never(override)) is not None:
            yield Finding(path, "can never match", why)
        elif not override.model_fields_set - {"key", "platform", "chat"}:
            yield Finding(path, "changes nothing", "add mode, idle_minutes, at_hour, timezone or notify")


def _never(override: ResetOverride) -> str | None:
    platform, chat = override.platform, override.chat
    if platform in NO_CHAT and chat is not None:
        return f"{platform} sessions are in no chat; take chat out"
    if platform is not None and chat is not None:
        kinds = manifest(platform).chat_kinds
        if ChatKind(chat) not in kinds:
            return f"{platform} has no chats of the kind {chat}; it has {', '.join(sorted(kinds))}"
    if not (glob := override.key):
        return None
    # Only the fixed text before the first wildcard is looked at.
    fixed = glob[: min((glob.find(char) for char in "*?" if char in glob), default=len(glob))]
    if not "agent:".startswith(fixed[:6]):
        return "session keys begin with agent: as in agent:main:telegram:dm"
    scopes = (platform,) if platform else (*OUR_OWN, *of_others(), *NO_CHAT)
    parts = fixed.split(":")
    third = parts[2] if len(parts) > 2 else ""
    known = third in scopes if len(parts) > 3 else any(scope.startswith(third) for scope in scopes)
    return None if known else f"the key's third part must be {', '.join(scopes)}"


@warning
def alike(config: Config) -> Iterator[Finding]:
    overrides = config.session_reset.overrides
    for at, later in enumerate(overrides):
        first = next((number for number, earlier in enumerate(overrides[:at]) if _same_chats(earlier, later)), None)
        if first is not None:
            said, hint = (
                f"as specific as overrides[{first}]",
                "both match the same sessions and the first is used: keep one",
            )
            yield Finding(f"session_reset.overrides[{at}]", said, hint, also=f"session_reset.overrides[{first}]")


def _same_chats(one: ResetOverride, other: ResetOverride) -> bool:
    if one.key and other.key:
        return _covers(one.key, other.key) or _covers(other.key, one.key)
    return (one.key, one.platform, one.chat) == (other.key, other.platform, other.chat)


def _covers(glob: str, key: str) -> bool:
    return fnmatchcase(key, glob.replace("[", "[[]"))


@warning
def names(config: Config) -> Iterator[Finding]:
    hint = "write the id: names can be taken over by others. `hermes pair list` shows ids"
    for platform, section in config.platforms.by_name().items():
        for at, user in enumerate(section.allowed_users if section.enabled else ()):
            if user.startswith("@"):
                yield Finding(f"platforms.{platform}.allowed_users[{at}]", "is a name and never matches", hint)


@warning
def tools(config: Config) -> Iterator[Finding]:
    """Tools that are listed in vain, and rules about tools that are not there."""
    for name, agent in config.agents.items():
        if "web_search" in agent.tools and not config.web.search:
            said, hint = "web_search is not offered", "name the engine in web: {search: …}"
            yield Finding(f"agents.{name}.tools[{agent.tools.index('web_search')}]", said, hint)
        for at, rule in enumerate(agent.approve):
            tool = rule.partition(":")[0]
            known = {*BUILT, *WITH_SETTINGS, *of_other_packages()}
            if tool not in known and not any(tool.startswith(f"{server}_") for server in config.mcp_servers):
                said = f"there is no tool {tool}"
                yield Finding(f"agents.{name}.approve[{at}]", said, "a tool of an MCP server is <server>_<tool>")


@warning
def mcp_tools(config: Config) -> Iterator[Finding]:
    """Tools that get another name than one would think, that would be approved in vain, and all if the library is missing."""
    servers = config.mcp_servers
    if servers and find_spec("mcp") is None:
        from sessions.packages import install_command

        yield Finding("mcp_servers", "have no effect", f"install the library: {install_command('mcp')}")
    for name, server in servers.items():
        for tool in dict.fromkeys([*server.tools, *server.approve]):
            plain, offered = f"{name}_{tool}", mcp_tool_name(name, tool, servers)
            if offered != plain:
                said, hint = (
                    f"its tool {tool} is offered as {offered}",
                    "a name has letters, digits, _ and -, 64 at most",
                )
                if _TOOL_NAME.fullmatch(plain):
                    hint = f"{plain} could be another tool; give the server another name"
                yield Finding(f"mcp_servers.{name}", said, hint)
        for at, tool in enumerate(server.approve):
            if server.tools and tool not in server.tools:
                said = f"{tool} is not offered"
                yield Finding(f"mcp_servers.{name}.approve[{at}]", said, "add it to tools, or take it out here")
