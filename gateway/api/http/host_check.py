"""Checks Host and Origin, so that a web page in somebody's browser cannot use this API."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web

from gateway.api.http.errors import ApiError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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
