"""What pydantic found, in the words of somebody who edits the file."""

from typing import Any, cast

from pydantic_core import ErrorDetails

from gateway.config.masking import looks_secret, without_secrets
from gateway.config.overlay import Overlay
from gateway.config.problems import Path, Problem, dotted, nearest
from gateway.config.schema_info import SchemaInfo, Takes


def explained(error: ErrorDetails, overlay: Overlay, schema: SchemaInfo) -> Problem:
    """The error with the place that it is about."""
    path: Path = tuple(part for part in error["loc"] if part != "[key]")
    about_key = error["type"] == "extra_forbidden" or "[key]" in error["loc"]
    said, hint, suggestion = _about_key(error, path, schema) if about_key else _about_value(error, path, schema)
    place = overlay.key_place(path) if about_key or not overlay.has(path) else overlay.place(path)
    return Problem(place=place, path=dotted(path), said=said, hint=hint, suggestion=suggestion)


def _about_key(error: ErrorDetails, path: Path, schema: SchemaInfo) -> tuple[str, str, str | None]:
    if error["type"] != "extra_forbidden":
        return "this name cannot be used", "allowed: letters, digits, _ and -", None
    known = schema.beside(path)
    suggestion = nearest(str(path[-1]), known)
    return "unknown key", "" if suggestion else f"allowed: {', '.join(known)}", suggestion


def _about_value(error: ErrorDetails, path: Path, schema: SchemaInfo) -> tuple[str, str, str | None]:
    wanted, value = schema.takes(path) or Takes(kind=str), error["input"]
    secret = looks_secret(schema, path)
    said = f"got {got(value, secret=secret, section=schema.is_section(path))}"
    match error["type"]:
        case "literal_error":
            return said, f"allowed: {', '.join(wanted.words)}", nearest(str(value), wanted.words)
        case "time_zone":
            return f"{said}, which is no time zone", "", _nearest_zone(str(value))
        case "url":
            return f"{said}, which is no URL", "write it with its scheme, as in https://host/path", None
        case "string_type" if isinstance(value, bool | int | float):
            return said, "write it in quotes" if secret else f'write it in quotes: "{_scalar(value)}"', None
        case "string_too_short":
            return "got an empty text", "write an id, or take the line out", None
        case "string_pattern_mismatch":
            return said, "allowed: letters, digits, _ and -", None
        case "int_type" | "float_type" if _is_number(value):
            return said, f"write it without quotes: {value}", None
        case _:
            return said, f"allowed: {allowed(wanted)}", None


def got(value: object, *, secret: bool, section: bool = False) -> str:
    """What is written there; never a secret."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "a section" if value else "an empty section"
        case list():
            return "a list"
        case _ if secret:
            return "a text" if isinstance(value, str) else "a value that is no text"
        case bool():
            return _scalar(value)
        case int() | float():
            return f"the number {_scalar(value)}"
        case _ if section:
            return "a text"
        case _:
            text = str(value)
            return without_secrets(repr(text if len(text) <= 60 else f"{text[:60]}..."))


def _scalar(value: float) -> str:
    return str(value).lower()


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
    found = [
        getattr(part, name, None)
        for limit in wanted.limits
        for part in (limit, *cast(tuple[Any, ...], getattr(limit, "metadata", ())))
    ]
    return next((value for value in found if value is not None), None)


def _is_number(data: object) -> bool:
    return isinstance(data, str) and data.strip().lstrip("-").replace(".", "", 1).isdecimal()


def _nearest_zone(name: str) -> str | None:
    from zoneinfo import available_timezones

    return nearest(name, available_timezones())
