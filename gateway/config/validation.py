"""Validates data as pydantic does, but reads texts as their keys want them, and goes on without what is wrong."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.config.model import Config
from gateway.config.problems import MASK, BadConfig, KeyPath, Problem, nearest, unknown_key
from gateway.config.sources import DOTENV, PREFIX, REFERENCE, Setting, without_references
from gateway.config.yaml_nodes import Document, read_yaml
from gateway.observe.redaction import redact

_BROKEN = re.compile(r"(?<!\$)\$\{(?![A-Za-z_][A-Za-z0-9_.-]*\})[^}\s]{0,40}\}?")


class UntypedText(str):
    """What a variable holds, or a value with a reference: its key says whether it means a number, a switch or a list."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BadReference:
    """Stands for a text with a bad reference. It is of no type that a key can have, so the validation finds it.

    `is_broken`: it is written wrongly; else it leads nowhere.
    """

    said: str
    hint: str
    is_broken: bool = False


def resolve_references(value: Any, find: Callable[[str], str | None]) -> Any:
    """The data with each `${NAME}` replaced by what `find` returns for it."""
    match value:
        case dict():
            return {name: resolve_references(one, find) for name, one in cast(dict[str, Any], value).items()}
        case list():
            return [resolve_references(one, find) for one in cast(list[Any], value)]
        case str() if "${" in value:
            return _replaced(value, find)
        case _:
            return value


def _replaced(text: str, find: Callable[[str], str | None]) -> UntypedText | BadReference:
    for name in REFERENCE.findall(text):
        if not (found := find(name)):
            said = f"${{{name}}} {'is set nowhere' if found is None else 'is set, but empty'}"
            return BadReference(said, f"put {name}=... into {DOTENV} in the home, or take this key out")
    if broken := _BROKEN.search(text):
        return BadReference(f"{broken[0]} is no reference", "write ${NAME}; $${ is a plain ${", is_broken=True)
    return UntypedText(without_references(text, find))


def lay_over(file: Document, found: Sequence[Setting], root: type[Config]) -> Document:
    """The file with the variables over it."""
    found = [setting for setting in found if len(setting.path) > 1]
    if not found:
        return file
    # It takes 60 ms, and most homes set no key by a variable.
    from pydantic_settings import EnvSettingsSource, SettingsConfigDict

    source = EnvSettingsSource(cast(Any, root), env_prefix=PREFIX, env_nested_delimiter="__")
    # Values stay texts, because a list may be written with commas, and any value as a reference.
    source.config = SettingsConfigDict(enable_decoding=False)
    source.env_vars = {setting.name.lower(): UntypedText(setting.value) for setting in found}
    places = {setting.path: setting.place for setting in found}
    around = {path[:end] for path in places for end in range(1, len(path)) if path[:end] in file.places}
    over = {*places, *(path for path in around if not isinstance(file.value(path), dict))}  # a section replaces a value
    below = {at: place for at, place in file.places.items() if not any(at[: len(path)] == path for path in over)}
    # A section that no file has is where its first variable is.
    sections = {one.path[:end]: one.place for one in reversed(found) for end in range(1, len(one.path))}
    # The library leaves out what is no section, and nobody would hear of it.
    named: dict[str, Any] = {one.path[0]: {} for one in found}
    return replace(file, data=_merged(file.data, named | source()), places=sections | below | places)


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    low, high = cast(dict[str, Any], below), cast(dict[str, Any], above)
    return low | {name: _merged(low.get(name), one) for name, one in high.items()}


KeySchema = Mapping[str, Any]


def takes(root: type[Config], path: KeyPath) -> KeySchema | None:
    """What may be written for a key of the whole configuration `root`; None for a key that does not exist."""
    whole = _json_schema(root)
    found: KeySchema | None = whole
    for part in path:
        found = _below(found, part)
        while found and ("$ref" in found or "anyOf" in found):  # a section, or a type beside null
            name = found.get("$ref", "").rpartition("/")[2]
            found = whole["$defs"][name] if name else next(one for one in found["anyOf"] if one.get("type") != "null")
        if found is None:
            return None
    return found


def beside(root: type[Config], path: KeyPath) -> tuple[str, ...]:
    """The keys of the section that `path` is in."""
    return tuple((takes(root, path[:-1]) or {}).get("properties", ()))


def is_secret(taken: KeySchema) -> bool:
    return taken.get("format") == "password"


def holds_plain_values(taken: KeySchema) -> bool:
    """Whether the value is no secret, and neither a section nor a list of what could hold one."""
    value = taken.get("items", taken)
    return value.get("type") in {"string", "integer", "number", "boolean"} and not is_secret(value)


@cache
def _json_schema(root: type[Config]) -> KeySchema:
    """Costs 10 ms, so it is asked for only when there is something to explain."""
    return root.model_json_schema()


def _below(around: KeySchema, part: str | int) -> KeySchema | None:
    if not around:  # it takes anything, at any depth
        return around
    if isinstance(part, int):
        return around.get("items")
    # A mapping of free names has patterns where the names are checked, else one schema for all.
    free_names = [*around.get("patternProperties", {}).values(), around.get("additionalProperties")]
    found = around.get("properties", {}).get(part) or free_names[0]
    return {} if found is True else found or None  # true: anything


_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_JSON_TYPES = {
    "bool_type": "boolean",
    "int_type": "integer",
    "float_type": "number",
    "list_type": "array",
    "dict_type": "object",
    "model_type": "object",
}


def validated(root: type[Config], data: Any) -> tuple[Config, list[tuple[KeyPath, ErrorDetails]]]:
    """The configuration, and what is wrong by its path. That is taken out of the data, so that the rules can look at the rest."""
    wrong: list[tuple[KeyPath, ErrorDetails]] = []
    # It ends: each round turns texts into what they mean, which is no such text any more, or takes something out.
    while True:
        try:
            config = root.model_validate(data)
            found = [(_steps(data, path), _not_resolved(path, one)) for path, one in _bad_references(data)]
            if not found:
                return config, wrong
        except ValidationError as error:
            found = [(_steps(data, one["loc"]), one) for one in error.errors(include_url=False)]
        for steps, one in found:
            holder, part = steps[-1]
            value = _meant(one)
            if value is one["input"]:
                wrong.append((tuple(part for _, part in steps), one))
                value = {}
                if one["type"] != "model_type":
                    # The named key goes as a whole, so that the indices of lists stay what they are.
                    holder, part = next(step for step in reversed(steps) if isinstance(step[1], str))
                    holder.pop(part, None)
                    continue
            holder[part] = value


def _bad_references(data: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, BadReference]]:
    """Those under keys of other packages that take anything."""
    match data:
        case BadReference():
            yield path, data
        case dict():
            for name, one in cast(dict[str, Any], data).items():
                yield from _bad_references(one, (*path, name))
        case list():
            for at, one in enumerate(cast(list[Any], data)):
                yield from _bad_references(one, (*path, at))
        case _:
            pass


def _not_resolved(path: KeyPath, reference: BadReference) -> ErrorDetails:
    return {"type": "bad_reference", "loc": path, "msg": reference.said, "input": reference}


def _meant(error: ErrorDetails) -> Any:
    """What was written, as the type that pydantic missed; as it is, where it means nothing of that type."""
    kind = _JSON_TYPES.get(error["type"], "")
    match error["input"]:
        case None if kind in {"array", "object"}:  # a section whose keys are all commented out
            return [] if kind == "array" else {}
        case str() as text if isinstance(text, UntypedText) or kind == "boolean":
            return from_text(text, {"type": kind})
        case written:
            return written


def from_text(text: str, wanted: KeySchema) -> Any:
    """What a text means for a key; the text itself, where it means nothing of its type."""
    match wanted.get("type"):
        case "boolean":
            return _SWITCHES.get(text.strip().lower(), text)
        case "array" if not text.lstrip().startswith("["):
            parts = [UntypedText(part.strip()) for part in text.split(",") if part.strip()]
            return [from_text(part, wanted.get("items", {})) for part in parts]
        case "integer" | "number" | "array" | "object" if text.strip():
            try:
                value = read_yaml(text).data
            except BadConfig:
                return text
            # 1e3 is a whole number, too.
            is_whole = wanted["type"] == "integer" and isinstance(value, float) and value.is_integer()
            return int(value) if is_whole else value
        case _:
            return text


def _steps(data: Any, location: KeyPath) -> list[tuple[Any, str | int]]:
    """The way to a place in the data. Left out is what pydantic adds to say that it looked at a key, or at one type of several."""
    steps: list[tuple[Any, str | int]] = []
    for part in location:
        if isinstance(data, list) or (isinstance(data, dict) and part in cast(dict[str, Any], data)):
            steps.append((cast(Any, data), part))
            data = cast(Any, data)[part]
    return steps


_WIDTH = 160
# An unknown key of such a name holds a secret, also where a harmless key is the most like it.
_SUSPICIOUS = re.compile(r"token|secret|key|passw|credential", re.IGNORECASE)
# A text whose quote is never closed may have taken in the key below it.
_NAMED = re.compile(r"\w*(?:token|secret|key|passw)\w*[\"']?\s*[:=]", re.IGNORECASE)
# One entry and nothing in which another could hide: no comment, no braces, no text that goes on below.
_ENTRY = re.compile(r"\s*(?:- )?(?P<key>[A-Za-z_]+):\s+(?P<value>[^\s#{}\[\]&*|>][^#{}]*|\[[^#{}]*\])?\s*")


def with_excerpt(problem: Problem, document: Document, lines: list[str], root: type[Config]) -> Problem:
    """The problem with its line of the file, and without what slipped to where a key belongs."""
    at = list(problem.at)
    for end, part in enumerate(problem.at, 1):
        is_meant = end == len(at) and problem.suggestion is not None
        if not (is_meant or re.fullmatch(r"\d+|[A-Za-z_.]*", str(part)) or takes(root, problem.at[:end])):
            at[end - 1] = MASK
    return replace(problem, at=tuple(at), excerpt=_line_of(problem, document, lines, root))


def _line_of(problem: Problem, document: Document, lines: list[str], root: type[Config]) -> str:
    """Empty unless the line holds one entry of a key that cannot be secret; a misspelt one counts as the one that is meant."""
    place = problem.place
    path = next((at for at, one in document.places.items() if one.key and one.key.line == place.line), None)
    if place.source != document.places[()].source or path is None:
        return ""
    text = lines[place.line - 1]
    entry = _ENTRY.fullmatch(text)
    fits = len(text) <= _WIDTH and text.isprintable() and redact(text) == text
    if entry is None or entry["key"] != path[-1] or not fits:
        return ""
    meant = takes(root, path)
    if meant is None and not _SUSPICIOUS.search(str(path[-1])):
        meant = takes(root, (*path[:-1], problem.suggestion or ""))
    return text if meant is not None and (not entry["value"] or holds_plain_values(meant)) else ""


_LARGEST = 10**20


def explained(path: KeyPath, error: ErrorDetails, document: Document, root: type[Config]) -> Problem:
    """The error with the place that it is about."""
    if error["type"] == "extra_forbidden":
        return unknown_key(document.place(path, of_key=True), path, beside(root, path))
    if error["loc"][-1] == "[key]":
        return document.problem(path, "this name cannot be used", "allowed: letters, digits, _ and -", of_key=True)
    if isinstance(reference := error["input"], BadReference):
        return document.problem(path, reference.said, reference.hint)
    return document.problem(path, *_about_value(error, takes(root, path) or {}))


def _about_value(error: ErrorDetails, wanted: KeySchema) -> tuple[str, str, str | None]:
    value, words = error["input"], wanted.get("enum", ())
    said = f"got {_got(value, wanted)}"
    match error["type"]:
        case "literal_error":
            return said, f"allowed: {', '.join(words)}", nearest(str(value), words)
        case "time_zone":
            from zoneinfo import available_timezones  # slow: it looks through folders

            return f"{said}, which is no time zone", "", nearest(str(value), available_timezones())
        case "database":
            hint = "allowed: postgresql://..., or nothing for SQLite in the home"
            return "got another kind of address", hint, None
        case "url":
            return f"{said}, which is no URL", "write it with its scheme, as in https://host/path", None
        case "string_type" if isinstance(value, bool | int | float):
            example = "" if is_secret(wanted) else f': "{str(value).lower()}"'
            return said, f"write it in quotes{example}", None
        case "string_too_short":
            return "got an empty text", "write an id, or take the line out", None
        case "string_pattern_mismatch" if ": " in wanted.get("pattern", ""):
            return said, 'write a tool and what its question shows: "process: git status*"', None
        case "string_pattern_mismatch":
            return said, "allowed: letters, digits, _ and -", None
        case "int_type" | "float_type" if isinstance(value, str) and re.fullmatch(r" *-?\d+\.?\d* *", value):
            return said, f"write it without quotes: {value}", None
        case _:
            return said, f"allowed: {_allowed(wanted)}", None


def _got(value: object, wanted: KeySchema) -> str:
    """What is written there; never a secret."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "a section" if value else "an empty section"
        case list():
            return "a list"
        case str() if not holds_plain_values(wanted):
            return "a text"
        case _ if is_secret(wanted):
            return "a value that is no text"
        case bool():
            return str(value).lower()
        case int() if abs(value) > _LARGEST:  # Python prints no more than 4,300 digits
            return "a very large number"
        case int() | float():
            return f"the number {value}"
        case _:
            text = str(value)
            shown = repr(text if len(text) <= 60 else f"{text[:60]}...")
            return MASK if _NAMED.search(shown) else redact(shown)


def _allowed(wanted: KeySchema) -> str:
    low, high = wanted.get("minimum"), wanted.get("maximum")
    match wanted.get("type"):
        case "object":
            return "a section with keys below it"
        case "array":
            example = ", ".join(wanted.get("items", {}).get("enum", ())[:2]) or '"..."'
            return f"a list, as in [{example}]"
        case "boolean":
            return "true, false"
        case "integer" | "number" if high is not None:
            return f"{low} to {high}"
        case "integer" | "number" as kind:
            what = "a whole number" if kind == "integer" else "a number"
            return what if low is None else f"{what} from {low}"
        case _:
            return ", ".join(wanted.get("enum", ())) or "a text"
