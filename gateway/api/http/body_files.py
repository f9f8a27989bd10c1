"""Files in the JSON of a request: base64, a data: URL, or an http address.

Each long base64 text is taken out of the body before it is parsed: it is decoded into a file and replaced by a short token.

So no picture is in memory as a whole, and no step holds the GIL for longer than it takes to decode 64 kB.
"""

import binascii
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Annotated, Any

from pydantic import AfterValidator, ValidationInfo, WithJsonSchema

from gateway.attachments.safe_fetch import LONGEST_ADDRESS

LONG = 16_384
"""Characters of base64. Shorter texts stay in the body."""
_PIECE = 65_536
_THREES = 49_152
"""Bytes that make 64 kB of base64."""
_START = re.compile(
    rb'"(?:url|image_url|file_url|data|file_data)"\s{0,20}:\s{0,20}"(?:data:[\w.+/;=\\-]{0,300};base64,)?(?=[A-Za-z0-9+/\\]{%d})'
    % LONG
)
_CARRIED = LONG + 1_024
"""Bytes that are kept for the next piece: the pattern needs this many after the start of a text to match."""


class NotDetachable(ValueError):
    """A base64 text contains escapes, so it cannot be decoded piece by piece. The body has to be parsed as it is."""


@dataclass(slots=True)
class DetachedFile:
    """`token`: the text that replaces the file in the body. `offset`: where its content begins in the spool file. `valid`: the text was base64."""

    token: str
    offset: int
    size: int = 0
    valid: bool = True


class DetachedFiles:
    """The files of one body. They stay on disk until `close`."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._nonce = secrets.token_hex(16)  # nobody else can write a token
        self._spool: IO[bytes] | None = None
        self._reading = Lock()  # a thread may still read when its call has ended
        self._size = 0
        self._found: dict[str, DetachedFile] = {}
        self._unclaimed: set[str] = set()

    @property
    def unclaimed(self) -> bool:
        """Whether a token stands where the schema expects no file. That text must not be changed."""
        return bool(self._unclaimed)

    def detach(self, pieces: Iterable[bytes]) -> bytes:
        """Returns the body with a token in place of each file. Raises NotDetachable. Blocks."""
        rest, scanned, file = bytearray(), b"", None
        for piece in pieces:
            scanned += piece
            while True:
                if file is None:
                    start = _START.search(scanned)
                    if start is None:
                        break
                    file = self._begin()
                    rest += scanned[: start.end()] + file.token.encode()
                    scanned = scanned[start.end() :]
                end = scanned.find(b'"')
                if end < 0:
                    break
                self._take(file, scanned[:end], is_last=True)
                file, scanned = None, scanned[end:]
            if file is not None:
                scanned = self._take(file, scanned, is_last=False)
            else:
                done = max(0, len(scanned) - _CARRIED)
                rest += scanned[:done]
                scanned = scanned[done:]
        return bytes(rest) + scanned

    def _begin(self) -> DetachedFile:
        file = DetachedFile(token=f"detached:{self._nonce}:{len(self._found)}", offset=self._size)
        self._found[file.token] = file
        self._unclaimed.add(file.token)
        return file

    def _take(self, file: DetachedFile, letters: bytes, *, is_last: bool) -> bytes:
        """Decodes and writes these characters. Returns the last ones that can be decoded only together with the next piece."""
        if b"\\" in letters:
            letters = letters.replace(b"\\/", b"/")  # as some libraries write it
            # One at the very end may be the first half of an escaped slash whose second half comes with the next piece.
            if b"\\" in letters[: None if is_last else -1]:
                raise NotDetachable
        whole = len(letters) if is_last else max(0, len(letters) - 1) // 4 * 4
        if file.valid:
            self._decode(file, letters[:whole], is_last=is_last)
        return letters[whole:]

    def _decode(self, file: DetachedFile, letters: bytes, *, is_last: bool) -> None:
        try:
            data = binascii.a2b_base64(letters, strict_mode=True)
        except binascii.Error:
            file.valid = False
            return
        file.valid = is_last or b"=" not in letters  # padding ends base64, so in the middle it is an error
        if self._spool is None:
            self._spool = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # closed by `close`
        self._spool.write(data)
        self._size += len(data)
        file.size += len(data)

    def claim(self, text: str) -> bool | None:
        """Returns whether the file of this token was valid base64; None: the text is no token. Called by the schemas for fields that hold files."""
        file = self._found.get(text)
        if file is None:
            return None
        self._unclaimed.discard(text)
        return file.valid

    def get(self, text: str) -> DetachedFile | None:
        return self._found.get(text)

    def within(self, text: str) -> DetachedFile | None:
        """Returns the file whose token ends this data: URL or is this text; None: there is none."""
        return self.get(text.rpartition(",")[2])

    def whole(self, text: str) -> str:
        """Returns the text with the content of the file, in base64, instead of the token. Blocks."""
        file = self.within(text)
        if file is None:
            return text
        encoded = (binascii.b2a_base64(piece, newline=False).decode() for piece in self.pieces(file, _THREES))
        return "".join([text.removesuffix(file.token), *encoded])

    def pieces(self, file: DetachedFile, size: int = _PIECE) -> Iterator[bytes]:
        """Yields the content of the file. Raises ValueError when the files were closed meanwhile. Blocks."""
        for at in range(0, file.size, size):
            with self._reading:
                if self._spool is None:
                    raise ValueError("the call has ended")
                self._spool.seek(file.offset + at)
                piece = self._spool.read(min(size, file.size - at))
            yield piece

    def close(self) -> None:
        with self._reading:
            if self._spool is not None:
                self._spool.close()
            self._spool = None


NO_FILES = DetachedFiles()
"""The files of a body from which none was taken out."""


# --- fields of the schemas that hold files ---

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
