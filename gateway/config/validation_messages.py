"""Rewrites pydantic's errors for the person who edits the file."""

import re

from pydantic_core import ErrorDetails

from gateway.config.masking import without_secrets
from gateway.config.model import Config
from gateway.config.overlay import BadReference
from gateway.config.problems import Path, Problem, nearest, unknown_key
from gateway.config.schema_info import KeySchema, beside, holds_plain_values, is_secret, takes
from gateway.config.yaml_nodes import Document

_LARGEST = 10**20


def explained(path: Path, error: ErrorDetails, document: Document, root: type[Config]) -> Problem:
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
            return without_secrets(repr(text if len(text) <= 60 else f"{text[:60]}..."))


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
