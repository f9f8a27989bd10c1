"""Parses and validates a request body, and tells the author of the request what is wrong with it, and where.

Files are taken out of large bodies first, see `body_files.py`. Then the number of values is checked, and that the numbers are finite: a
million empty objects (3 MB) would need gigabytes once they are parsed.
"""

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json

from gateway.api.http.body import Body
from gateway.api.http.body_files import NO_FILES, DetachedFiles, NotDetachable
from gateway.api.http.errors import ApiError, invalid, too_large
from gateway.texts import counted

MOST_PARSED = 12_582_912
"""Bytes of a body besides its files. Parsing holds the GIL all the time."""


class BodyHash:
    """Hashes a body while it is read, so that it is recognised when it is sent again, without keeping it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def pieces(self, body: Body) -> Iterator[bytes]:
        """Yields the body in pieces, and hashes each. Blocks."""
        for piece in body.pieces():
            self._hash.update(piece)
            yield piece

    def fingerprint(self, more: str = "") -> str:
        """Returns the same value for a body that is equal byte by byte. `more` is hashed with it."""
        known = self._hash.copy()
        known.update(more.encode())
        return known.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBody:
    body: BaseModel
    body_hash: BodyHash = field(default_factory=BodyHash)
    files: DetachedFiles = NO_FILES


def parse_body(model: type[BaseModel], body: Body) -> ReadBody:
    """Parses and validates a small body. Raises ApiError. Blocks where the body is in a file."""
    body_hash = BodyHash()
    return ReadBody(body=_checked(model, b"".join(body_hash.pieces(body))), body_hash=body_hash)


def parse_large_body(model: type[BaseModel], body: Body, files: DetachedFiles) -> ReadBody:
    """Parses and validates a large body, and moves its files into `files`. Raises ApiError. Blocks."""
    body_hash = BodyHash()
    try:
        rest = files.detach(body_hash.pieces(body))
        _require_short(len(rest))
        read = ReadBody(body=_checked(model, rest, files), body_hash=body_hash, files=files)
    except NotDetachable:  # an escape inside of base64: the whole body is parsed below
        pass
    else:
        if not files.unclaimed:
            return read
    _require_short(body.size)  # of what looked like a file, something is none
    return parse_body(model, body)


def _require_short(size: int) -> None:
    if size > MOST_PARSED:
        raise too_large(
            f"Besides its files a body may have {MOST_PARSED:,} bytes. Files are sent as base64, without escapes."
        )


def _checked(model: type[BaseModel], raw: bytes, files: DetachedFiles | None = None) -> BaseModel:
    require_bounded(raw)
    return validate(model, raw, files)


def validate(model: type[BaseModel], sent: bytes | Mapping[str, str], files: DetachedFiles | None = None) -> BaseModel:
    """Validates a body strictly, and a query with conversion, as it has only texts. Raises ApiError."""
    try:
        if isinstance(sent, bytes):
            return model.model_validate_json(sent, context=files)
        return model.model_validate(sent, strict=False)
    except ValidationError as error:
        raise describe_error(error, sent) from None
    except RecursionError:
        raise invalid("The body is nested too deeply.", code="bad_body") from None


# --- bounds ---

MOST_VALUES = 100_000
_SLICE = 16_384
"""Bytes that are looked at in one go. Longer slices would hold the GIL for too long."""
_LONGEST = len("Infinity")
"""Bytes that are searched again with the next slice, because a number may go on there."""
# Only an exponent of three digits can make a number infinite. Whether it does, a full parse tells.
_STRANGE = re.compile(rb"NaN|Infinity|[eE]\+?[0-9]{3}")


def require_bounded(sent: bytes) -> None:
    """Raises ApiError when the text has more than MOST_VALUES values, or a number that is NaN or infinite, which no model endpoint
    accepts. A text that is no JSON passes: the parser refuses it later."""
    found, before, is_strange = 0, b"", False
    for outside in _outside_of_strings(sent):
        found += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if found > MOST_VALUES:
            raise invalid(
                f"The body holds more than {MOST_VALUES:,} values. Send less at once.", code="too_many_values"
            )
        searched = before + outside
        is_strange = is_strange or _STRANGE.search(searched) is not None
        before = searched[-_LONGEST:]
    if is_strange:
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(sent, parse_constant=_no_number, parse_float=_finite)


def _outside_of_strings(sent: bytes) -> Iterator[bytes]:
    """Yields the text without what stands in its strings, a slice at a time."""
    is_inside, carried = False, b""
    for at in range(0, len(sent), _SLICE):
        piece = (carried + sent[at : at + _SLICE]).replace(rb"\\", b"")
        carried = b"\\" if piece.endswith(b"\\") else b""  # it may escape the quote that the next slice begins with
        parts = piece.replace(rb"\"", b"").split(b'"')
        yield b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0  # an even number of parts means an odd number of quotes


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> float:
    raise invalid(f"{text[:40]} is no number that JSON knows.", code="bad_json")


def as_integer(value: Any) -> Any:
    """Returns 2.0 as the integer 2, as JSON makes no difference between them; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- errors ---

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
            return "it must hold more than blanks"
        case {"type": "string_pattern_mismatch", "ctx": {"pattern": str(pattern)}}:
            return f"it must match the pattern {pattern}"
        case {"type": "too_short", "ctx": {"min_length": int(least)}}:
            return f"it must have at least {counted(least, 'item')}"
        case {"type": "too_long", "ctx": {"max_length": int(most)}}:
            return f"it must have at most {counted(most, 'item')}"
        case _:
            return error["msg"].removeprefix("Value error, ")


def _leads_on(body: Any, step: int | str) -> bool:
    if isinstance(body, dict):
        return step in body
    return isinstance(body, list) and isinstance(step, int) and step < len(cast(list[Any], body))
