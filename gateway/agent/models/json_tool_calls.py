"""Recognises tool calls that a model has written as JSON, in the shapes in which small models write them. Pure."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from gateway.agent.models.interface import JSON

Offered = Mapping[str, JSON]
"""The functions that may be called, by name, as `tools` has them."""

_NAMES, _ARGUMENTS = ("name", "tool", "tool_name", "function"), ("arguments", "parameters", "args", "input")
_BESIDE = frozenset({*_NAMES, *_ARGUMENTS, "type", "id"})
_LIKE_CALL = re.compile(r'"(?:name|tool|tool_name|function)"\s*:\s*"(?P<name>[\w-]{1,64})"')


def calls_in(text: str, offered: Offered) -> list[JSON]:
    """Returns the calls that this text consists of: one object, a list of them, or several on successive lines; else none."""
    calls: list[JSON] = []
    rest = text.strip()
    while rest:
        found, end = first_object(rest)
        if end == 0:
            return []
        made = _calls(found, offered)
        if not made:
            return []
        calls += made
        rest = rest[end:].lstrip(" \t\r\n,;")
    return calls


def first_object(text: str) -> tuple[Any, int]:
    """Returns the JSON that the text begins with, and where it ends; (None, 0) when it is none, or not yet. `{{…}}` is `{…}`."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text)  # models write line breaks into strings as they are
    except ValueError:
        pass
    if not text.startswith("{{"):
        return None, 0
    end = text.find("}}", 2)
    while end >= 0:
        doubled = text[: end + 2]
        # Small models copy the braces of a template: the outer pair alone is doubled, or every pair.
        halved = doubled.replace("{{", "{").replace("}}", "}") if doubled.count("{{") == doubled.count("}}") else ""
        for inside in (text[1 : end + 1], halved):
            try:
                return json.loads(inside, strict=False), end + 2
            except ValueError:
                continue
        end = text.find("}}", end + 1)
    return None, 0


def broken_call(text: str, offered: Offered) -> JSON | None:
    """Returns a call of a known tool whose JSON is broken: it is made all the same, so that the model reads what is wrong with it."""
    found = _LIKE_CALL.search(text)
    if found is None or found["name"] not in offered:
        return None
    return _new_call(found["name"], text.strip())


def may_be_call(key: str, offered: Offered, *, whole: bool) -> bool:
    """Returns whether an object whose first key this is (or begins so) can be a call."""
    known = _BESIDE.union(*(_properties(function) for function in offered.values()))
    return key in known if whole else any(name.startswith(key) for name in known)


def _calls(found: Any, offered: Offered) -> list[JSON]:
    items = cast(list[Any], found) if isinstance(found, list) else [found]
    calls = [call for item in items if (call := _call(item, offered))]
    return calls if len(calls) == len(items) else []


def _call(item: Any, offered: Offered) -> JSON | None:
    if not isinstance(item, dict):
        return None
    fields = cast(JSON, item)
    if isinstance(inner := fields.get("function"), dict):  # the call as it stands in a transcript
        return _call(inner, offered)
    for key in _NAMES:
        if isinstance(name := fields.get(key), str) and name in offered:
            return _named_call(name, {field: value for field, value in fields.items() if field != key}, offered[name])
    return _nameless_call(fields, offered)


def _named_call(name: str, fields: JSON, function: JSON) -> JSON | None:
    """Returns the call of an object with the tool's name: its arguments are an object of their own, or stand beside the name."""
    for key in _ARGUMENTS:
        if isinstance(arguments := fields.get(key), (dict, str)):
            return _new_call(name, arguments)
    flat = {field: value for field, value in fields.items() if field not in {"type", "id"}}
    return _new_call(name, flat) if flat.keys() <= _properties(function) else None


def _nameless_call(fields: JSON, offered: Offered) -> JSON | None:
    """Returns the call of an object of arguments alone, when only one tool takes them."""
    fitting = [
        name
        for name, function in offered.items()
        if _has_known_action(fields, function)
        and fields.keys() <= _properties(function)
        and _required(function) <= fields.keys()
    ]
    return _new_call(fitting[0], fields) if len(fitting) == 1 else None


def _has_known_action(fields: JSON, function: JSON) -> bool:
    properties: dict[str, JSON] = _schema(function).get("properties") or {}
    allowed: Sequence[Any] = properties.get("action", {}).get("enum") or ()
    return fields.get("action") in allowed and len(fields) > 1


def _schema(function: JSON) -> JSON:
    return function.get("parameters") or {}


def _properties(function: JSON) -> frozenset[str]:
    return frozenset(_schema(function).get("properties") or ())


def _required(function: JSON) -> set[str]:
    return set(_schema(function).get("required") or ())


def _new_call(name: str, arguments: Any) -> JSON:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": "", "type": "function", "function": {"name": name, "arguments": text}}
