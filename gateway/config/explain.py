"""What pydantic found, in the words of somebody who edits the file."""

from typing import Any

from pydantic_core import ErrorDetails

from gateway.config.excerpts import looks_secret, without_secrets
from gateway.config.keys import Takes, is_section, known_beside, takes
from gateway.config.marks import Node, locate
from gateway.config.problems import Path, Problem, dotted, nearest


def explained(error: ErrorDetails, root: Node) -> Problem:
    """The error with the place in the tree that it is about."""
    path: Path = tuple(part for part in error["loc"] if part != "[key]")
    node, key, exact = locate(root, path)
    about_key = error["type"] == "extra_forbidden" or "[key]" in error["loc"]
    said, hint, suggestion = _about_key(error, path) if about_key else _about_value(error, path, node)
    place = key if key is not None and (about_key or not exact) else node.place
    return Problem(place=place, path=dotted(path), said=said, hint=hint, suggestion=suggestion)


def _about_key(error: ErrorDetails, path: Path) -> tuple[str, str, str | None]:
    if error["type"] != "extra_forbidden":
        return "this name cannot be used", "allowed: letters, digits, _ and -", None
    known = known_beside(path)
    suggestion = nearest(str(path[-1]), known)
    return "unknown key", "" if suggestion else f"allowed: {', '.join(known)}", suggestion


def _about_value(error: ErrorDetails, path: Path, node: Node) -> tuple[str, str, str | None]:
    wanted = takes(path) or Takes(kind=str)
    said = f"got {got(path, node)}"
    raw = node.raw or ""
    match error["type"]:
        case "literal_error":
            return said, f"allowed: {', '.join(wanted.words)}", nearest(raw, wanted.words)
        case "time_zone":
            return f"{said}, which is no time zone", "", _nearest_zone(raw)
        case "url":
            return f"{said}, which is no URL", "write it with its scheme, as in https://host/path", None
        case "string_type" if node.plain and raw and node.data is not None:
            return said, "write it in quotes" if looks_secret(path) else f'write it in quotes: "{raw}"', None
        case "string_too_short":
            return "got an empty text", "write an id, or take the line out", None
        case "string_pattern_mismatch":
            return said, "allowed: letters, digits, _ and -", None
        case "int_type" | "float_type" if _is_number(node.data):
            return said, f"write it without quotes: {node.data}", None
        case _:
            return said, f"allowed: {allowed(wanted)}", None


def got(path: Path, node: Node) -> str:
    """What is written there; never a secret."""
    match node.data:
        case None:
            return "nothing"
        case dict():
            return "a section" if node.data else "an empty section"
        case list():
            return "a list"
        case _ if looks_secret(path):
            return "a value that is no text" if not isinstance(node.data, str) else "a text"
        case bool():
            raw = node.raw or ""
            return raw if raw.lower() in {"true", "false"} else f"{raw}, which YAML reads as {str(node.data).lower()}"
        case int() | float():
            return f"the number {node.raw or node.data}"
        case _ if is_section(path):
            return "a text"
        case text:
            return without_secrets(repr(text if len(text) <= 60 else f"{text[:60]}..."))


def allowed(wanted: Takes) -> str:
    if wanted.words:
        return ", ".join(wanted.words)
    if wanted.section is not None or wanted.is_mapping:
        return "a section with keys below it"
    if wanted.is_list:
        element = wanted.element
        example = ", ".join(element.words[:2]) if element and element.words else '"..."'
        return f"a list, as in [{example}]"
    if wanted.kind is bool:
        return "true, false"
    if wanted.kind in {int, float}:
        return _range(wanted)
    return "a text"


def _range(wanted: Takes) -> str:
    kind = "a whole number" if wanted.kind is int else "a number"
    low, high = (_limit(wanted, name) for name in ("ge", "le"))
    match low, high:
        case None, None:
            return kind
        case _, None:
            return f"{kind} from {low}"
        case _:
            return f"{low} to {high}"


def _limit(wanted: Takes, name: str) -> Any:
    found = [getattr(part, name, None) for limit in wanted.limits for part in (limit, *getattr(limit, "metadata", ()))]
    return next((value for value in found if value is not None), None)


def _is_number(data: object) -> bool:
    return isinstance(data, str) and data.strip().lstrip("-").replace(".", "", 1).isdecimal()


def _nearest_zone(name: str) -> str | None:
    from zoneinfo import available_timezones

    return nearest(name, available_timezones())
