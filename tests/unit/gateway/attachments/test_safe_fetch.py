"""What strangers' addresses may reach: nothing of ours, not by a trick of spelling, of names, or of redirects."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.attachments.safe_fetch import IP, Fetcher, NotFetched, is_public

HERE = ip_address("127.0.0.1")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def only_here(ip: IP) -> bool:
    """In these tests the loopback address plays the public one."""
    return ip == HERE


class NameTable:
    """A name server that can change its mind."""

    def __init__(self, **places: list[str]) -> None:
        self.places = places
        self.asked: list[str] = []

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        return self.places[host.partition(".")[0]]


@asynccontextmanager
async def site(answer: Callable[[web.Request], Any]) -> AsyncIterator[tuple[int, list[web.Request]]]:
    """A web site on a port of this machine; what it was asked."""
    seen: list[web.Request] = []

    async def handle(request: web.Request) -> Any:
        seen.append(request)
        given = answer(request)
        return await given if asyncio.iscoroutine(given) else given

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    server = TestServer(app, host="127.0.0.1")
    async with server:
        yield server.port or 0, seen


def fetcher(names: NameTable | None = None, **more: Any) -> Fetcher:
    return Fetcher(resolve=names or NameTable(files=["127.0.0.1"]), allowed=only_here, **more)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.9.9.9", "169.254.169.254", "172.16.0.1",
        "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.7",
        "203.0.113.7", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16",
        "::", "::1", "::127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:8.8.8.8", "64:ff9b::7f00:1",
        "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "3fff::1",
        "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
    ],
)  # fmt: skip
def test_what_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"]
)
def test_what_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1/", "http://127.0.0.1.:80/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://127.1/",
        "http://0177.0.0.1/", "http://0/", "http://①②⑦.0.0.1/", "http://127。0。0。1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
        "http://[fe80::1%25lo]/", "http://localhost/", "http://LOCALHOST./", "http://a.localhost/", "http://169.254.169.254/latest",
        "ftp://files.example/", "file:///etc/passwd", "gopher://files.example/", "//files.example/", "files.example", "", "http://",
        "http:///x", "http://me:secret@files.example/", "http://me@files.example/", "http://files.example:99999/", "http://[",
        "http://files.example/" + "x" * 5_000,
    ],
)  # fmt: skip
async def test_addresses_that_are_refused_before_anybody_is_asked(address: str) -> None:
    names = NameTable()
    with pytest.raises(NotFetched):
        await Fetcher(resolve=names).fetch(address, 100)
    assert names.asked == []


async def test_a_file_is_fetched_without_telling_who_we_are() -> None:
    async with site(lambda _: web.Response(body=PNG, content_type="text/plain")) as (port, seen):
        found = await fetcher().fetch(f"http://files.example:{port}/a.png?sig=1#part", 100)
    assert (found.data, found.mime) == (PNG, "image/png")
    assert found.url.endswith("/a.png?sig=1")
    assert seen[0].headers["Host"] == f"files.example:{port}"
    assert not {"Authorization", "Cookie", "Referer"} & set(seen[0].headers)


@pytest.mark.parametrize(
    ("body", "told", "is_"),
    [
        (b"\xff\xd8\xff\xe0", "application/pdf", "image/jpeg"),
        (b"GIF89a", "image/png", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/png", "image/webp"),
        (b"%PDF-1.7", "application/octet-stream", "application/pdf"),
        (b"\n <!DOCTYPE html><title>Log in</title>", "application/pdf", "text/html"),
        (b"a,b\n1,2\n", "text/csv", "text/csv"),
    ],
)
async def test_a_file_is_what_it_looks_like(body: bytes, told: str, is_: str) -> None:
    async with site(lambda _: web.Response(body=body, content_type=told)) as (port, _):
        assert (await fetcher().fetch(f"http://files.example:{port}/", 100)).mime == is_


async def test_a_name_is_resolved_once_and_kept_to() -> None:
    """A name that is harmless when it is checked and ours when it is connected to."""
    names = NameTable(files=["127.0.0.1"])
    async with site(lambda _: web.Response(body=b"x")) as (port, seen):

        def change_its_mind(ip: IP) -> bool:
            names.places["files"] = ["127.0.0.2"]
            return only_here(ip)

        await Fetcher(resolve=names, allowed=change_its_mind).fetch(f"http://files.example:{port}/", 100)
    assert names.asked == ["files.example"]
    assert len(seen) == 1


@pytest.mark.parametrize("places", [["127.0.0.2"], ["127.0.0.1", "10.0.0.1"], ["::1", "127.0.0.1"], []])
async def test_a_name_with_one_forbidden_place_is_refused(places: list[str]) -> None:
    async with site(lambda _: web.Response(body=b"x")) as (port, seen):
        with pytest.raises(NotFetched, match="private network"):
            await fetcher(NameTable(files=places)).fetch(f"http://files.example:{port}/", 100)
    assert seen == []


async def test_redirects_are_followed_three_times() -> None:
    def step(request: web.Request) -> web.Response:
        left = int(request.path.strip("/"))
        return (
            web.Response(body=b"there") if not left else web.Response(status=307, headers={"Location": f"/{left - 1}"})
        )

    async with site(step) as (port, seen):
        assert (await fetcher().fetch(f"http://files.example:{port}/3", 100)).data == b"there"
        assert len(seen) == 4
        with pytest.raises(NotFetched, match="too often"):
            await fetcher().fetch(f"http://files.example:{port}/4", 100)


@pytest.mark.parametrize(
    "to", ["http://127.0.0.2/", "http://inside.example/", "http://localhost/", "file:///etc/passwd", "http://u:p@files.example/", "http://["]
)  # fmt: skip
async def test_each_redirect_is_checked_anew(to: str) -> None:
    names = NameTable(files=["127.0.0.1"], inside=["10.0.0.1"])
    async with site(lambda _: web.Response(status=302, headers={"Location": to})) as (port, seen):
        with pytest.raises(NotFetched):
            await fetcher(names).fetch(f"http://files.example:{port}/", 100)
    assert len(seen) == 1


async def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site(lambda _: web.Response(body=b"x")) as (port, seen):
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9/")
        await fetcher().fetch(f"http://files.example:{port}/", 100)
    assert seen[0].path == "/"


async def test_a_file_has_a_limit_whether_its_size_was_told_or_not() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        for _ in range(1_000):
            await stream.write(b"x" * 1_000)
        return stream

    for answer in (lambda _: web.Response(body=b"x" * 101), endless):
        async with site(answer) as (port, _):
            with pytest.raises(NotFetched, match="larger than 100 bytes"):
                await fetcher().fetch(f"http://files.example:{port}/", 100)


def sends(body: bytes, packed: str) -> Any:
    return lambda _: web.Response(body=body, headers={"Content-Encoding": packed})


async def test_what_is_sent_packed_although_nobody_asked_is_unpacked() -> None:
    for pack, name in ((gzip.compress, "gzip"), (zlib.compress, "deflate")):
        async with site(sends(pack(b"plain"), name)) as (port, seen):
            assert (await fetcher().fetch(f"http://files.example:{port}/", 100)).data == b"plain"
        assert seen[0].headers["Accept-Encoding"] == "identity"


async def test_a_small_file_that_unfolds_to_a_large_one_is_refused_within_the_limit() -> None:
    bomb = gzip.compress(bytes(500_000_000), 1)
    async with site(sends(bomb, "gzip")) as (port, _):
        tracemalloc.start()
        try:
            with pytest.raises(NotFetched, match="larger"):
                await fetcher().fetch(f"http://files.example:{port}/", 3_000_000)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(("body", "packed"), [(b"\x1f\x8b\x08...", "gzip"), (b"x", "br"), (b"x", "gzip, gzip")])
async def test_what_cannot_be_unpacked_is_refused(body: bytes, packed: str) -> None:
    async with site(sends(body, packed)) as (port, _):
        with pytest.raises(NotFetched):
            await fetcher().fetch(f"http://files.example:{port}/", 100)


async def test_everything_together_has_a_time() -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    async def silent(_: str) -> list[str]:
        await asyncio.sleep(60)
        raise AssertionError

    async with site(never) as (port, _):
        for slow in (fetcher(seconds=0.05), Fetcher(resolve=silent, seconds=0.05)):
            with pytest.raises(NotFetched, match=r"0\.05 seconds"):
                await slow.fetch(f"http://files.example:{port}/", 100)


async def test_trouble_is_told_without_the_address() -> None:
    async def nobody(_: str) -> list[str]:
        raise OSError("no such name: secret.example")

    for attempt in (Fetcher(resolve=nobody), fetcher()):  # no such name; nobody listens
        with pytest.raises(NotFetched, match="cannot be reached") as told:
            await attempt.fetch("http://files.example:1/?token=secret", 100)
        assert "secret" not in str(told.value)
    async with site(lambda _: web.Response(status=403)) as (port, _):
        with pytest.raises(NotFetched, match="status 403"):
            await fetcher().fetch(f"http://files.example:{port}/", 100)
