"""Files are taken out of a body before it is parsed, and nothing else of it changes."""

import base64
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.api.http.body_files import LONG, DetachedFiles, NotDetachable

DATA = random.Random(1).randbytes(200_000)
LETTERS = base64.b64encode(DATA).decode()
URL = f"data:image/png;base64,{LETTERS}"


def in_pieces(body: bytes, size: int) -> Iterator[bytes]:
    yield from (body[at : at + size] for at in range(0, len(body), size))


def detached(tmp_path: Path, sent: Any, size: int = 65_536) -> tuple[Any, DetachedFiles]:
    files = DetachedFiles(tmp_path)
    body = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    return json.loads(files.detach(in_pieces(body, size))), files


def contents(files: DetachedFiles, text: str) -> bytes:
    file = files.within(text)
    assert file is not None
    return b"".join(files.pieces(file))


@pytest.mark.parametrize("size", [1_000, 65_536, 1_000_000])
def test_whatever_the_pieces_are_the_files_are_whole_and_the_rest_is_as_it_was(tmp_path: Path, size: int) -> None:
    sent = {"text": LETTERS[:30_000], "a": [{"url": URL}, {"data": LETTERS}, {"file_data": "AAAA"}], "url": "https://x"}
    rest, files = detached(tmp_path, sent, size)
    url, data = rest["a"][0]["url"], rest["a"][1]["data"]
    assert len(url) < 200
    assert url.startswith("data:image/png;base64,")
    assert [contents(files, text) for text in (url, data)] == [DATA, DATA]
    assert [files.whole(text) for text in (url, data)] == [URL, LETTERS]
    assert (rest["text"], rest["a"][2], rest["url"]) == (sent["text"], {"file_data": "AAAA"}, "https://x")
    files.close()
    with pytest.raises(ValueError, match="ended"):
        contents(files, url)


@pytest.mark.parametrize("rest", range(4))
def test_every_length_of_a_file(tmp_path: Path, rest: int) -> None:
    data = DATA[: 100_000 + rest]
    found, files = detached(tmp_path, {"data": base64.b64encode(data).decode()})
    assert contents(files, found["data"]) == data
    assert files.claim(found["data"]) is True


def test_slashes_may_be_escaped_as_some_libraries_do(tmp_path: Path) -> None:
    body = json.dumps({"url": URL}).replace("/", "\\/").encode()
    for size in range(4_000, 4_008):
        found, files = detached(tmp_path, body, size)
        assert contents(files, found["url"]) == DATA


@pytest.mark.parametrize("letters", [LETTERS + "A", LETTERS[:100_000] + "==" + LETTERS, LETTERS + "=A=", LETTERS + "é"])
def test_what_is_no_base64_is_found_out(tmp_path: Path, letters: str) -> None:
    found, files = detached(tmp_path, json.dumps({"data": letters}, ensure_ascii=False).encode())
    assert files.claim(found["data"]) is False


def test_other_escapes_leave_the_body_to_the_parser(tmp_path: Path) -> None:
    for body in (b'{"url": "' + LETTERS.encode() + b'\\u0041"}', b'{"url": "' + LETTERS.encode() + b'\\"A"}'):
        with pytest.raises(NotDetachable):
            detached(tmp_path, body)


def test_a_token_counts_only_in_the_body_that_it_was_made_for(tmp_path: Path) -> None:
    found, files = detached(tmp_path, {"data": LETTERS[: LONG * 2]})
    other = DetachedFiles(tmp_path)
    assert other.claim(found["data"]) is None
    assert files.unclaimed
    assert files.claim(found["data"]) is True
    assert not files.unclaimed


def test_a_text_that_looks_like_a_field_is_none(tmp_path: Path) -> None:
    sent = {"content": json.dumps({"data": LETTERS}), "text": f'"url": "{LETTERS}"'}
    found, _ = detached(tmp_path, sent)
    assert found == sent
