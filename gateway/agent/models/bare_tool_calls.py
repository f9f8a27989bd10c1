"""Reads tool calls that small models write otherwise than as an object of JSON.

A tool's name and its arguments on one line, such as `session_search, "query": "tea"` or `memory save likes tea`, or an element, such as
`<function name="files" arguments='{"action": "list"}'/>`.
A name alone is none, and neither is a name before words that are no arguments: people talk of files, skills and memory, too.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.agent.models.interface import JSON

_OPENING = re.compile(r"[-*#`\s]*(?P<name>[A-Za-z]\w*)?(?P<after>.*)", re.DOTALL)
_BETWEEN = re.compile(r"`?\s*[,:;(]?\s*")
_PIECES = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^,;"])+')
_PAIR = re.compile(r'\s*"?(?P<key>\w+)"?\s*[:=]\s*(?P<value>.+)', re.DOTALL)
_ASSIGNMENT = re.compile(r'[,:(]\s*(?:\w+\s*=|"\w+"\s*:)')
_LONGEST_LINE = 1_000
ELEMENTS = ("<function", "<invoke", "<tool")
_ELEMENT = re.compile(
    r"(?:</?tools?>\s*)*<(?:function|function_call|invoke|tool|tool_call)(?:=|\s+(?:name|tool)\s*=\s*)[\"']?(?P<name>[\w-]{1,64})[\"']?(?P<rest>.*)",
    re.DOTALL,
)
_PARAMETER = re.compile(
    r"<parameter(?:=|\s+name\s*=\s*)[\"']?(?P<key>\w+)[\"']?\s*>(?P<value>.*?)</parameter>", re.DOTALL
)
_BEFORE_OBJECT = re.compile(r"\s*>?\s*(?:(?:arguments|parameters|args|input)\s*=\s*)?[\"']?\s*(?=\{)")
_AFTER_ELEMENT = re.compile(r"[\"'\s]*/?>?\s*(?:</?\w+>\s*)*")


def may_open(text: str, offered: Mapping[str, JSON]) -> bool:
    """Returns whether the beginning of an answer is, or may become, that of such a line."""
    found = _OPENING.match(text)
    name, after = ((found["name"] or "").lower(), found["after"]) if found else ("", "")
    if not after:
        return any(each.lower().startswith(name) for each in offered)
    tool = next((each for each in offered if each.lower() == name), None)
    if tool is None:
        return False
    begun = after.lstrip("` \t")
    if not begun or begun[0] in ",:;(":
        return True
    word = begun.split(maxsplit=1)[0].lower()
    return any(each.startswith(word) for each in _choices(offered[tool]).get("action", ()))


def read(text: str, offered: Mapping[str, JSON]) -> tuple[str, JSON] | None:
    """Returns the tool's name and the arguments of an answer that is such a line and nothing else; arguments are empty where the line cannot be
    understood, or more follows it. Returns None when the answer is text."""
    if element := _ELEMENT.match(text.strip()):
        name = element["name"]
        return (name, _of_element(element["rest"], offered[name])) if name in offered else None
    line, _, more = text.strip().partition("\n")
    found = _OPENING.match(line)
    name = next((each for each in offered if found and each.lower() == (found["name"] or "").lower()), None)
    if found is None or name is None or len(line) > _LONGEST_LINE:
        return None
    if text.strip() == name or (_ASSIGNMENT.search(found["after"]) and more.strip()):
        return name, {}
    inside = found["after"][(_BETWEEN.match(found["after"]) or found).end() :].strip(" `.)}{")
    pairs, bare = _taken_apart(inside, offered[name])
    if not pairs and _ASSIGNMENT.match(found["after"].lstrip("` ")):
        return name, {}
    if not pairs and (more.strip() or inside.endswith(":") or not bare):
        return None
    choices = _choices(offered[name])
    arguments = dict(pairs)
    for piece in bare:
        words = piece.split()
        while words and (key := next((key for key, said in choices.items() if words[0].lower() in said), None)):
            arguments.setdefault(key, words.pop(0).lower())
        if not words:
            continue
        if not pairs and "action" not in arguments:
            return None
        main = next((key for key in _texts(offered[name]) if key not in arguments), None)
        if main is None:
            return name, {}
        arguments[main] = " ".join(words).strip("\"'")
    if not pairs and "action" not in arguments:
        return None
    return name, {} if more.strip() else arguments


def _of_element(rest: str, function: JSON) -> JSON:
    """Returns the arguments of an element, which are its parameters or an object of JSON; empty when there are none, or more follows."""
    arguments: Any = {}
    if pairs := _PARAMETER.findall(rest):
        properties = _properties(function)
        arguments = {key: _value(value.strip(), properties.get(key, {})) for key, value in pairs}
        rest = _PARAMETER.sub("", rest)
    elif before := _BEFORE_OBJECT.match(rest):
        rest = rest[before.end() :]
        try:
            arguments, end = json.JSONDecoder(strict=False).raw_decode(rest)
        except ValueError:
            return {}
        rest = rest[end:]
    return arguments if _AFTER_ELEMENT.fullmatch(rest) else {}


def _taken_apart(inside: str, function: JSON) -> tuple[dict[str, Any], list[str]]:
    """Returns the arguments that are written with their names, and the other pieces."""
    pairs: dict[str, Any] = {}
    bare: list[str] = []
    for piece in _PIECES.findall(inside):
        pair = _PAIR.fullmatch(piece)
        if pair is not None and pair["key"] in _properties(function):
            pairs[pair["key"]] = _value(pair["value"].strip(), _properties(function)[pair["key"]])
        elif piece.strip():
            bare.append(piece.strip())
    return pairs, bare


def _value(written: str, schema: JSON) -> Any:
    try:
        value = json.loads(written)
    except ValueError:
        value = written.strip("\"'")
    return value if not isinstance(value, int | float) or "string" not in _types(schema) else written


def _properties(function: JSON) -> dict[str, JSON]:
    parameters: JSON = function.get("parameters") or {}
    return parameters.get("properties") or {}


def _types(schema: JSON) -> Sequence[str]:
    return [str(each.get("type")) for each in schema.get("anyOf") or [schema]]


def _choices(function: JSON) -> dict[str, Sequence[str]]:
    """Returns the words that may stand for an argument, by its name."""
    return {key: schema["enum"] for key, schema in _properties(function).items() if schema.get("enum")}


def _texts(function: JSON) -> list[str]:
    """Returns the arguments that are free text, in order."""
    return [
        key for key, schema in _properties(function).items() if "string" in _types(schema) and not schema.get("enum")
    ]
