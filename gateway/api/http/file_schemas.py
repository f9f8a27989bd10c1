"""Files in a request: base64, a data: URL, or an http address. In the place of long base64 there is a token, see `detached_files`."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationInfo, WithJsonSchema

from gateway.api.http.detached_files import DetachedFiles
from gateway.attachments.safe_fetch import LONGEST_ADDRESS

_SLICE = 65_536
_LETTERS = re.compile(r"[A-Za-z0-9+/]*+")  # possessive: it never tries again with fewer letters
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_TYPE = r"[A-Za-z0-9_.+-]{1,64}/[A-Za-z0-9_.+-]{1,64}"
_DATA = re.compile(rf"data:(?P<mime>{_TYPE})?(?:;[A-Za-z0-9_.+-]{{1,64}}=[A-Za-z0-9_.+-]{{1,64}})*;base64,")
_ADDRESS = re.compile(r"https?://[^\s/]+\S*")

_BASE64_PATTERN = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_AS_BASE64: dict[str, Any] = {"type": "string", "pattern": f"^{_BASE64_PATTERN}$"}
_AS_DATA: dict[str, Any] = {"type": "string", "pattern": f"^data:(?:{_TYPE})?;base64,{_BASE64_PATTERN}$"}
_AS_NAMED_HOST: dict[str, Any] = {
    "type": "string",
    "pattern": r"^https?://(?:[a-z][a-z0-9]{0,40}\.){1,5}[a-z]{2,20}(?::[1-9][0-9]{0,3})?(?:/[A-Za-z0-9_.~/-]*)?$",
    "maxLength": LONGEST_ADDRESS,
    "description": "Public addresses only. What cannot be fetched is told to the agent in the file's place.",
}


def is_data(text: str) -> bool:
    return text[:5] == "data:"


def split(text: str) -> tuple[str | None, str]:
    """Returns the media type of a data: URL, if it names one, and its base64 text."""
    found = _DATA.match(text)
    return (found["mime"], text[found.end() :]) if found else (None, text)


def _is_contents(text: str, info: ValidationInfo) -> bool:
    known = info.context.claim(text) if isinstance(info.context, DetachedFiles) else None
    return _is_base64(text) if known is None else known


def _is_base64(text: str) -> bool:
    """Returns whether the text is base64. Looks at it in slices: one look at 24 MB would hold the GIL all the time."""
    body = max(0, len(text) - 4)
    slices = (_LETTERS.fullmatch(text, at, min(at + _SLICE, body)) for at in range(0, body, _SLICE))
    return len(text) % 4 == 0 and all(slices) and _BASE64.fullmatch(text, body) is not None


def _base64(text: str, info: ValidationInfo) -> str:
    if not _is_contents(text, info):
        raise ValueError("this is not base64")
    return text


def _data(text: str, info: ValidationInfo) -> str:
    found = _DATA.match(text)
    if found is None or not _is_contents(text[found.end() :], info):
        raise ValueError("this is not a data: URL in base64")
    return text


def _contents(text: str, info: ValidationInfo) -> str:
    return _data(text, info) if is_data(text) else _base64(text, info)


def _url(text: str, info: ValidationInfo) -> str:
    if is_data(text):
        return _data(text, info)
    if len(text) > LONGEST_ADDRESS or _ADDRESS.fullmatch(text) is None:
        raise ValueError(f"give an http or https address of at most {LONGEST_ADDRESS:,} characters, or a data: URL")
    return text


Base64 = Annotated[str, AfterValidator(_base64), WithJsonSchema(_AS_BASE64)]
Contents = Annotated[str, AfterValidator(_contents), WithJsonSchema({"anyOf": [_AS_DATA, _AS_BASE64]})]
FileUrl = Annotated[str, AfterValidator(_url), WithJsonSchema({"anyOf": [_AS_DATA, _AS_NAMED_HOST]})]
