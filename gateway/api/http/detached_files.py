"""Takes files out of a JSON body before it is parsed: each long base64 text is decoded into a file and replaced by a short token.

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
from typing import IO

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
