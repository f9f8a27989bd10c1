"""Rewrites pydantic's errors for the person who edits the file."""

import re

from pydantic_core import ErrorDetails

from gateway.config.masking import looks_secret, without_secrets
from gateway.config.problems import Path, Problem, nearest, unknown_key
from gateway.config.schema_info import SchemaInfo, Takes
from gateway.config.yaml_nodes import Document


def explained(error: ErrorDetails, document: Document, schema: SchemaInfo) -> Problem:
    """The error with the place that it is about."""
    path: Path = tuple(part for part in error["loc"] if part != "[key]")
    if error["type"] == "extra_forbidden":
        return unknown_key(document.place(path, of_key=True), path, str(path[-1]), schema.beside(path))
    if "[key]" in error["loc"]:
        return document.problem(path, "this name cannot be used", "allowed: letters, digits, _ and -", of_key=True)
    return document.problem(path, *_about_value(error, path, schema))


def _about_value(error: ErrorDetails, path: Path, schema: SchemaInfo) -> tuple[str, str, str | None]:
    wanted, value = schema.takes(path) or Takes(kind=str), error["input"]
    secret = looks_secret(schema, path)
    said = f"got {_got(value, secret=secret, section=wanted.section is not None)}"
    match error["type"]:
        case "literal_error":
            return said, f"allowed: {', '.join(wanted.words)}", nearest(str(value), wanted.words)
        case "time_zone":
            from zoneinfo import available_timezones  # slow: it looks through folders

            return f"{said}, which is no time zone", "", nearest(str(value), available_timezones())
        case "database":
            hint = "allowed: postgresql://..., or nothing for SQLite in the home"
            return "got another kind of address", hint, None
        case "url":
            return f"{said}, which is no URL", "write it with its scheme, as in https://host/path", None
        case "string_type" if isinstance(value, bool | int | float):
            return said, "write it in quotes" if secret else f'write it in quotes: "{str(value).lower()}"', None
        case "string_too_short":
            return "got an empty text", "write an id, or take the line out", None
        case "string_pattern_mismatch":
            return said, "allowed: letters, digits, _ and -", None
        case "int_type" | "float_type" if isinstance(value, str) and re.fullmatch(r" *-?\d+\.?\d* *", value):
            return said, f"write it without quotes: {value}", None
        case _:
            return said, f"allowed: {_allowed(wanted)}", None


def _got(value: object, *, secret: bool, section: bool) -> str:
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
            return str(value).lower()
        case int() | float():
            return f"the number {value}"
        case _ if section:
            return "a text"
        case _:
            text = str(value)
            return without_secrets(repr(text if len(text) <= 60 else f"{text[:60]}..."))


def _allowed(wanted: Takes) -> str:
    if wanted.words:
        return ", ".join(wanted.words)
    if wanted.section is not None or wanted.kind is dict:
        return "a section with keys below it"
    if wanted.element is not None:
        example = ", ".join(wanted.element.words[:2]) or '"..."'
        return f"a list, as in [{example}]"
    if wanted.kind is bool:
        return "true, false"
    if wanted.kind not in {int, float}:
        return "a text"
    low, high = wanted.limits.get("ge"), wanted.limits.get("le")
    if high is not None:
        return f"{low} to {high}"
    kind = "a whole number" if wanted.kind is int else "a number"
    return kind if low is None else f"{kind} from {low}"
