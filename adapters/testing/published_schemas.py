# pyright: basic
"""The platforms' own published request schemas, against which their fakes hold every call."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema.exceptions

_LONGEST = 300


def schema_problems(platform: str, request: str, body: Any) -> list[str]:
    """At most one: the one that says most. `request`: method and path, as in the file of the platform."""
    error: Any = jsonschema.exceptions.best_match(_validator(platform, request).iter_errors(body))
    return [] if error is None else [f"{request}: {error.json_path}: {error.message[:_LONGEST]}"]


@cache
def _validator(platform: str, request: str) -> Any:
    schemas = _schemas(platform)
    return jsonschema.Draft202012Validator({**schemas["requests"][request], "schemas": schemas["schemas"]})


@cache
def _schemas(platform: str) -> Any:
    return json.loads(Path(__file__).with_name(f"{platform}_api.json").read_text(encoding="utf-8"))
