"""Describes validation errors for the author of the request: what is wrong, and where."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from gateway.api.http.errors import ApiError, invalid

_ADDRESSES = frozenset({"url", "file_url", "image_url"})


def describe_error(error: ValidationError, sent: bytes | Mapping[str, str]) -> ApiError:
    """Describes the deepest error. Where several alternatives were tried, it belongs to the one that fitted best."""
    found = error.errors(include_url=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return invalid(f"The body is not valid JSON: {found[0]['msg'].removeprefix('Invalid JSON: ')}", code="bad_json")
    body = from_json(sent) if isinstance(sent, bytes) else sent
    where, first = max(((_where(each, body), each) for each in found), key=lambda one: len(one[0]))
    param = _spelled(where)
    what = _what(first)
    return invalid(f"{param}: {what}" if param else what, code="invalid_value", param=param or None)


def place_of(address: str, sent: Any) -> str | None:
    """Returns the path of the field in the request that holds the address of a file."""
    places = (where for where, text in _texts(sent) if text == address and where[-1] in _ADDRESSES)
    return next(map(_spelled, places), None)


def _texts(body: Any, where: tuple[int | str, ...] = ()) -> Iterator[tuple[tuple[int | str, ...], str]]:
    match body:
        case str():
            yield where, body
        case dict():
            for name, value in cast(dict[str, Any], body).items():
                yield from _texts(value, (*where, name))
        case list():
            for number, value in enumerate(cast(list[Any], body)):
                yield from _texts(value, (*where, number))
        case _:
            pass


def _spelled(where: Sequence[int | str]) -> str:
    """Returns the path as client libraries write it: `messages[0].content[1].image_url.url`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).removeprefix(".")


def _where(error: ErrorDetails, body: Any) -> tuple[int | str, ...]:
    """Returns the place of the error in what was sent."""
    # pydantic's steps to it also name our models and the alternatives of a union, which nobody outside knows.
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
        case {"type": "extra_forbidden"}:
            return "This field is not supported here"
        case {"type": "union_tag_not_found"}:
            return "Field required"
        case {"type": "string_pattern_mismatch", "ctx": {"pattern": r"\S"}}:
            return "String should hold more than blanks"
        case {"type": "string_pattern_mismatch"}:
            return "String is not written as it should be here"
        case _:
            return error["msg"].removeprefix("Value error, ")


def _leads_on(body: Any, step: int | str) -> bool:
    if isinstance(body, dict):
        return step in body
    return isinstance(body, list) and isinstance(step, int) and step < len(cast(list[Any], body))
