"""What is wrong with a request, and where, in words for whoever wrote it."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from gateway.api.errors import ApiError, invalid


def in_words(error: ValidationError, sent: bytes | Mapping[str, str]) -> ApiError:
    """The one that lies deepest: where several readings were tried, that one came furthest."""
    found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return invalid(f"The body is not valid JSON: {found[0]['msg'].removeprefix('Invalid JSON: ')}", code="bad_json")
    body = from_json(sent) if isinstance(sent, bytes) else sent
    where, first = max(((_where(each, body), each) for each in found), key=lambda one: len(one[0]))
    param = ".".join(map(str, where))
    what = _what(first)
    return invalid(f"{param}: {what}" if param else what, code="invalid_value", param=param or None)


def _where(error: ErrorDetails, body: Any) -> tuple[int | str, ...]:
    """The place in what was sent; among the steps to it are names of ours, which nobody outside knows."""
    steps: list[int | str] = []
    for step in error["loc"]:
        if _leads_on(body, step):
            steps.append(step)
            body = body[step]
    match error:
        case {"type": "missing"}:
            return (*steps, error["loc"][-1])
        case {"ctx": {"discriminator": str(field)}}:
            return (*steps, field.strip("'"))
        case _:
            return tuple(steps)


def _what(error: ErrorDetails) -> str:
    match error:
        case {"type": "union_tag_invalid", "ctx": {"expected_tags": str(known)}}:
            return f"Input should be one of {known}"
        case {"type": "union_tag_not_found"}:
            return "Field required"
        case _:
            return error["msg"].removeprefix("Value error, ")


def _leads_on(body: Any, step: int | str) -> bool:
    if isinstance(body, dict):
        return step in body
    return isinstance(body, list) and isinstance(step, int) and step < len(cast(list[Any], body))
