"""Parses and validates a request body. Files are taken out of large bodies first, see `detached_files.py`."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ValidationError

from gateway.api.http.body import Body
from gateway.api.http.detached_files import DetachedFiles, NotDetachable
from gateway.api.http.errors import invalid, too_large
from gateway.api.http.json_bounds import require_bounded
from gateway.api.http.validation_errors import describe_error

MOST_PARSED = 12_582_912
"""Bytes of a body besides its files. Parsing holds Python's lock all the time."""


class Sent:
    """Recognises a body that is sent again, without keeping it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def pieces(self, body: Body) -> Iterator[bytes]:
        """The body, a little at a time. Blocks."""
        for piece in body.pieces():
            self._hash.update(piece)
            yield piece

    def fingerprint(self, more: str = "") -> str:
        """The same value for a body that is equal byte by byte. `more` is hashed with it."""
        known = self._hash.copy()
        known.update(more.encode())
        return known.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBody:
    body: BaseModel
    sent: Sent = field(default_factory=Sent)
    files: DetachedFiles = field(default_factory=DetachedFiles)


def parsed(model: type[BaseModel], body: Body) -> ReadBody:
    """Raises ApiError. Blocks where the body is in a file."""
    sent = Sent()
    return ReadBody(body=_checked(model, b"".join(sent.pieces(body))), sent=sent)


def parsed_large(model: type[BaseModel], body: Body, files: DetachedFiles) -> ReadBody:
    """With its files in `files`. Raises ApiError. Blocks."""
    sent = Sent()
    try:
        rest = files.detach(sent.pieces(body))
        _require_short(len(rest))
        read = ReadBody(body=_checked(model, rest, files), sent=sent, files=files)
    except NotDetachable:
        pass
    else:
        if not files.unclaimed:
            return read
    _require_short(body.size)  # of what looked like a file, something is none
    return parsed(model, body)


def _require_short(size: int) -> None:
    if size > MOST_PARSED:
        raise too_large(
            f"Besides its files a body may have {MOST_PARSED:,} bytes. Files are sent as base64, without escapes."
        )


def _checked(model: type[BaseModel], raw: bytes, files: DetachedFiles | None = None) -> BaseModel:
    require_bounded(raw)
    return validated(model, raw, files)


def validated(model: type[BaseModel], sent: bytes | Mapping[str, str], files: DetachedFiles | None = None) -> BaseModel:
    """A body is JSON and means what it says; a query has only texts. Raises ApiError."""
    try:
        if isinstance(sent, bytes):
            return model.model_validate_json(sent, context=files)
        return model.model_validate(sent, strict=False)
    except ValidationError as error:
        raise describe_error(error, sent) from None
    except RecursionError:
        raise invalid("The body is nested too deeply.", code="bad_body") from None
