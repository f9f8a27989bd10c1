"""Fetches addresses that strangers give, without access to private networks.

This machine may stand beside databases, routers and the metadata services of clouds. So a name is resolved once, all its addresses must
be public, and the connection goes to one of exactly these. Each redirect is checked the same way.
"""

import asyncio
import re
import socket
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from gateway.attachments.inbox_files import detect_type

IP = IPv4Address | IPv6Address
Resolve = Callable[[str], Awaitable[Sequence[str]]]

LONGEST_ADDRESS = 4_096
_PIECE = 65_536
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"User-Agent": "hermes-gateway", "Accept": "*/*", "Accept-Encoding": "identity"}
_ENDS_IN_A_NUMBER = re.compile(r"(?:^|\.)(?:\d+|0x[0-9a-f]*)\.?$", re.IGNORECASE)
_UNICAST_V6 = ip_network("2000::/3")  # mapped, translated (NAT64), local and multicast addresses all lie outside of it
_NOT_FOR_STRANGERS = tuple(
    map(
        ip_network,
        (
            "192.0.0.0/24",  # protocols of the network itself, and a cloud's metadata
            "192.88.99.0/24",  # relays of 6to4
            "168.63.129.16/32",  # a cloud's metadata on a public address
            "2001::/23",  # Teredo and other tunnels
            "2002::/16",  # 6to4: any IPv4 address in disguise
            "3fff::/20",  # for documentation
        ),
    )
)


class NotFetched(Exception):
    """`str()` is a sentence for the person who gave the address. It never holds the address, which may be a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """`mime`: the real media type, which may differ from the announced one."""

    url: str
    mime: str
    data: bytes


Fetch = Callable[[str, int], Awaitable[Fetched]]
"""What is at this address, at most so many bytes. Raises NotFetched."""


async def resolve(host: str) -> Sequence[str]:
    """Returns every address of this name. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


def is_public(ip: IP) -> bool:
    if isinstance(ip, IPv6Address) and ip not in _UNICAST_V6:
        return False
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in _NOT_FOR_STRANGERS)


class Fetcher:
    """Fetches addresses. `seconds`: the time-out for everything together. `allowed` decides about addresses, `resolve` looks names up."""

    def __init__(
        self,
        *,
        resolve: Resolve = resolve,
        allowed: Callable[[IP], bool] = is_public,
        seconds: float = 30,
        redirects: int = 3,
    ) -> None:
        self._resolve = resolve
        self._allowed = allowed
        self._seconds = seconds
        self._redirects = redirects

    async def fetch(self, address: str, limit: int) -> Fetched:
        """Reads at most `limit` bytes. Raises NotFetched and nothing else."""
        try:
            async with asyncio.timeout(self._seconds):
                url = self.check(address)
                for _ in range(self._redirects + 1):
                    async with self._open(url, await self._places(url)) as answer:
                        if answer.status not in _REDIRECTS:
                            return await _read(answer, limit)
                        url = self.check(str(url.join(URL(answer.headers.get("Location", "")))))
                raise NotFetched("It redirects too often.")
        except TimeoutError:
            raise NotFetched(f"It did not arrive within {self._seconds:g} seconds.") from None
        except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
            raise NotFetched("The server cannot be reached, or does not speak HTTP.") from error

    def check(self, address: str) -> URL:
        """Checks the address without any network call. Raises NotFetched."""
        try:
            url = URL(address).with_fragment(None)
        except ValueError:
            raise NotFetched("This is not an address.") from None
        host = (url.raw_host or "").rstrip(".").lower()
        if url.scheme not in {"http", "https"} or not host or len(address) > LONGEST_ADDRESS:
            raise NotFetched(f"Give an http or https address of at most {LONGEST_ADDRESS:,} characters.")
        if url.raw_user is not None or url.raw_password is not None:
            raise NotFetched("An address must not hold a name and password.")
        ip = _literal(host)
        if host == "localhost" or host.endswith(".localhost") or (ip is not None and not self._allowed(ip)):
            raise _not_public()
        if ip is None and _ENDS_IN_A_NUMBER.search(host):
            raise NotFetched("This number is neither a name nor a usual IP address.")
        return url

    async def _places(self, url: URL) -> Sequence[IP]:
        """Returns the addresses to connect to. One forbidden address makes the name forbidden."""
        host = url.raw_host or ""
        literal = _literal(host)
        found = [literal] if literal is not None else [ip_address(text) for text in await self._resolve(host)]
        if not found or not all(map(self._allowed, found)):
            raise _not_public()
        return found

    @asynccontextmanager
    async def _open(self, url: URL, places: Sequence[IP]) -> AsyncGenerator[aiohttp.ClientResponse]:
        connector = aiohttp.TCPConnector(resolver=_Pinned(places), use_dns_cache=False, force_close=True)
        session = aiohttp.ClientSession(
            connector=connector,
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # `_read` unpacks within the limit
            trust_env=False,  # a proxy would resolve the name again
            timeout=aiohttp.ClientTimeout(total=None),
        )
        async with session, session.get(url, allow_redirects=False) as answer:
            yield answer


class _Pinned(AbstractResolver):
    """A resolver that knows one name: the one that was checked."""

    def __init__(self, places: Sequence[IP]) -> None:
        self._places = places

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002  # the signature is aiohttp's
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(ip),
                port=port,
                family=socket.AF_INET if ip.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for ip in self._places
        ]

    async def close(self) -> None:
        """Nothing to close."""


def _literal(host: str) -> IP | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _not_public() -> NotFetched:
    return NotFetched("This address leads into a private network, where nothing is fetched from.")


async def _read(answer: aiohttp.ClientResponse, limit: int) -> Fetched:
    if answer.status != 200:
        raise NotFetched(f"The server answered with status {answer.status}.")
    packed = answer.headers.get("Content-Encoding", "identity").lower()
    if packed not in {"identity", "gzip", "deflate"}:
        raise NotFetched("The server sends it packed in a way that cannot be unpacked.")
    if (answer.content_length or 0) > limit:
        raise _too_large(limit)
    data, unpack = bytearray(), zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
    async for piece in answer.content.iter_chunked(_PIECE):
        # One byte more than fits is enough to know: a small answer may unfold to any size.
        data += piece if packed == "identity" else unpack.decompress(piece, limit + 1 - len(data))
        if len(data) > limit:
            raise _too_large(limit)
    mime = detect_type(bytes(data[:256])) or answer.content_type
    return Fetched(url=str(answer.url), mime=mime, data=bytes(data))


def _too_large(limit: int) -> NotFetched:
    return NotFetched(f"It is larger than {limit:,} bytes.")
