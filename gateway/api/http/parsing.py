"""Parses and validates a request body. Files are taken out of large bodies first, see `detached_files.py`."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ValidationError

from gateway.api.http.body import Body
from gateway.api.http.detached_files import NO_FILES, DetachedFiles, NotDetachable
from gateway.api.http.errors import invalid, too_large
from gateway.api.http.json_bounds import require_bounded
from gateway.api.http.validation_errors import describe_error

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
