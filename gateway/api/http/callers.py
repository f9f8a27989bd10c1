"""Who may call over HTTP: keys and their scopes, Host and Origin; `identify` in `server.py` slows wrong keys down.

API keys: configured ones, or the one in the home; right ones are never slowed down. Host and Origin are checked, so that a web page
in somebody's browser cannot use this API.
"""

import hashlib
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from gateway.api.http.errors import ApiError
from gateway.config.sections import is_loopback
from sessions.spending import NO_LIMIT, DayLimit

if TYPE_CHECKING:
    from gateway.config.model import Config

FILE = "api_key"
LOCAL_KEY = "local"
"""The name of the key that lies in the home: whoever reads it operates the gateway."""


class Scope(StrEnum):
    CHAT = "chat"
    READ = "read"
    APPROVE = "approve"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerKey:
    name: str
    secret: str = field(repr=False)
    scopes: frozenset[Scope] = frozenset({Scope.CHAT, Scope.READ})
    deployments: frozenset[str] = frozenset()
    limit: DayLimit = NO_LIMIT

    @property
    def account(self) -> str:
        """As whom calls with this key are counted."""
        return f"key:{self.name}"

    @property
    def may_approve(self) -> bool:
        return not self.scopes.isdisjoint({Scope.APPROVE, Scope.ADMIN})

    def sees(self, deployment_id: str, created_by: str) -> bool:
        return Scope.ADMIN in self.scopes or created_by == self.name or deployment_id in self.deployments


NOBODY = CallerKey(name="nobody", secret="", scopes=frozenset())
"""The caller of endpoints that need no key."""


@lru_cache(maxsize=256)
def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def caller_keys(config: "Config", generated: CallerKey | None) -> Sequence[CallerKey]:
    """Returns the configured keys; where none is configured, the one in the home."""
    if generated is not None and not config.api.keys:
        return (generated,)
    return [
        CallerKey(
            name=key.name,
            secret=key.key.get_secret_value(),
            scopes=frozenset(Scope(scope) for scope in key.scopes),
            deployments=frozenset(key.deployments),
            limit=DayLimit(messages=key.messages_per_day, tokens=key.tokens_per_day),
        )
        for key in config.api.keys
    ]


def find_key(keys: Sequence[CallerKey], presented: str) -> CallerKey | None:
    """Returns the key with the presented secret, or None. Takes the same time for right and wrong ones."""
    digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
    found: CallerKey | None = None
    for key in keys:  # to the end: how long it takes must not tell which key it was
        if hmac.compare_digest(_digest(key.secret), digest):
            found = key
    return found


def still_valid(keys: Sequence[CallerKey], known: CallerKey) -> CallerKey | None:
    """Returns the key as it is configured now; None when it was revoked."""
    return next((key for key in keys if key.name == known.name and key.secret == known.secret), None)


def local_key(home: Path) -> CallerKey:
    """Returns the generated key of this home, which is valid only on this machine. Blocks."""
    path = home / FILE
    try:
        secret = path.read_text().strip()
    except FileNotFoundError:
        secret = ""
    if not secret:  # missing, or empty because an earlier start was killed before it had written
        secret = f"hk-{secrets.token_urlsafe(32)}"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{secret}\n")
    return CallerKey(name=LOCAL_KEY, secret=secret, scopes=frozenset(Scope))


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float
    refused: bool = False  # since it was full


class Throttle:
    """Allows each name `burst` requests at once and `per_second` in the long run. Remembers only the newest names."""

    def __init__(self, *, burst: float, per_second: float, clock: Callable[[], float], most: int = 10_000) -> None:
        self._burst = burst
        self._per_second = per_second
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str) -> float:
        """Returns 0 when a request is allowed now, else the seconds until it will be."""
        bucket = self._filled(name)
        if bucket.left < 1:
            bucket.refused = True
            return (1 - bucket.left) / self._per_second
        bucket.left -= 1
        return 0.0

    def is_throttled(self, name: str) -> bool:
        """Returns whether a request of this name was refused and it has not paused since."""
        return self._filled(name).refused

    def _filled(self, name: str) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(self._burst, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_second)
        bucket.at = now
        bucket.refused = bucket.refused and bucket.left < self._burst
        return bucket


def network_of(address: str) -> str:
    """Returns the network of the address that one attacker probably controls as a whole."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return parsed.exploded[:19]  # the /64, which a provider gives to a single customer
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def _name(netloc: str) -> str:
    """Returns the host of `host:port` in one spelling; empty when it is invalid."""
    try:
        return (urlsplit(f"//{netloc}").hostname or "").rstrip(".")  # `localhost.` is the same host
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    public_url: str = ""
    allowed_hosts: Sequence[str] = ()

    def check(self, request: web.Request) -> None:
        """Raises ApiError when Host or Origin names another host than this gateway."""
        host = _name(request.headers.get("Host", ""))
        if not self._knows(host) and host != _own_address(request):
            message = f"The host {host!r} is not one of this gateway's. Add it to api.allowed_hosts."
            raise ApiError(403, message, code="host_not_allowed")
        origin = request.headers.get("Origin")
        if origin is not None and not self._knows(_name(origin.partition("://")[2])):
            raise ApiError(403, "Pages of other sites may not use this API.", code="origin_not_allowed")

    def _knows(self, name: str) -> bool:
        ours = {_name(allowed) for allowed in self.allowed_hosts} | {urlsplit(self.public_url).hostname or ""}
        return bool(name) and (name in _LOOPBACK or name in ours)


def _own_address(request: web.Request) -> str:
    """Returns the local address of the connection. No web page has it as the name of its origin."""
    own = request.transport.get_extra_info("sockname") if request.transport else None
    return str(own[0]) if isinstance(own, tuple) and own else ""  # pyright: ignore[reportUnknownArgumentType]


def from_this_machine(request: web.Request) -> bool:
    """Returns whether the request comes from this machine and not through a proxy on it."""
    # The name too: a web page whose domain was pointed to 127.0.0.1 comes from this machine, but with the name of its domain.
    return is_loopback(request.remote or "") and _name(request.headers.get("Host", "")) in _LOOPBACK
