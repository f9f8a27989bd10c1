"""How many connections may be open: in all, without a key from one address, and with one key.

A caller without a key never keeps anybody out: where all connections are taken, the address that has most of them without a key
loses its oldest. Those with a key leave a quarter free, in which `/healthz` and new callers come in.
"""

import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.observe.logging import get_logger

log = get_logger(__name__)

_LOG_SECONDS = 60
_OTHER_FILES = 160
"""Databases, logs, connections to the model and to platforms, and connections that wait to be accepted."""


class OpenConnection(Protocol):
    """A connection. `address`: where it comes from. `busy`: a request of it is being answered."""

    @property
    def address(self) -> str: ...

    @property
    def busy(self) -> bool: ...

    def force_close(self) -> None: ...


_Group = dict[OpenConnection, None]  # in the order in which they came


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionShares:
    """`per_address`: without a key. Those with a key may have three quarters of `total`, of which one key gets three quarters."""

    total: int = 1_000
    per_address: int = 500

    @property
    def with_key(self) -> int:
        return max(1, self.total * 3 // 4)

    @property
    def one_key(self) -> int:
        return max(1, self.with_key * 3 // 4)


def possible_connections(wanted: int) -> int:
    """Returns as many as wanted, or fewer where the process may not have as many files open; some are for everything else."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY or wanted + _OTHER_FILES <= allowed:
        return wanted
    found = max(16, allowed - _OTHER_FILES)
    log.warning("api.few_files", connections=found, wanted=wanted, open_files=allowed)
    return found


@dataclass(slots=True)
class _ConnectionGroups:
    """Connections, grouped by address or key."""

    groups: dict[str, _Group] = field(default_factory=dict[str, _Group])
    count: int = 0

    def add(self, name: str, connection: OpenConnection) -> None:
        self.groups.setdefault(name, {})[connection] = None
        self.count += 1

    def remove(self, name: str, connection: OpenConnection) -> None:
        group = self.groups[name]
        del group[connection]
        self.count -= 1
        if not group:
            del self.groups[name]

    def size(self, name: str) -> int:
        return len(self.groups.get(name, ()))

    def largest(self) -> Iterable[OpenConnection]:
        return tuple(max(self.groups.values(), key=len, default=_Group()))

    def of(self, name: str) -> Iterable[OpenConnection]:
        return tuple(self.groups.get(name, ()))


class ConnectionLimits:
    """Decides which connection is closed when there are too many. Made for one server."""

    def __init__(self, shares: ConnectionShares, clock: Callable[[], float] = time.monotonic) -> None:
        self._shares = shares
        self._clock = clock
        self._without_key = _ConnectionGroups()
        self._with_key = _ConnectionGroups()
        self._group_of: dict[OpenConnection, tuple[_ConnectionGroups, str]] = {}
        self._next_log_at = 0.0
        self._displaced = 0

    @property
    def count(self) -> int:
        return len(self._group_of)

    def opened(self, connection: OpenConnection) -> None:
        """Registers a new connection, of which only the address is known. Closes the oldest one of its kind if there are too many."""
        self._put(connection, self._without_key, connection.address)
        if self._without_key.size(connection.address) > self._shares.per_address:
            self._displace(self._without_key.of(connection.address), connection)
        elif self.count > self._shares.total:
            self._displace(self._without_key.largest(), connection)

    def closed(self, connection: OpenConnection) -> None:
        groups, name = self._group_of.pop(connection, (None, ""))
        if groups is not None:
            groups.remove(name, connection)

    def identified(self, connection: OpenConnection, key: str) -> bool:
        """Registers the key of a connection. Returns False when the key, or all keys together, have too many connections in use."""
        if self._group_of.get(connection) == (self._with_key, key):
            return True
        # An idle connection makes room, because clients keep some open between calls; only those in use count against a caller.
        if self._with_key.size(key) >= self._shares.one_key and not self._close_idle(self._with_key.of(key)):
            return False
        full = self._with_key.count >= self._shares.with_key
        if full and not self._close_idle(self._with_key.largest()):
            return False
        self.closed(connection)
        self._put(connection, self._with_key, key)
        return True

    def _put(self, connection: OpenConnection, groups: _ConnectionGroups, name: str) -> None:
        groups.add(name, connection)
        self._group_of[connection] = groups, name

    def _displace(self, candidates: Iterable[OpenConnection], newest: OpenConnection) -> None:
        """Closes the oldest connection, an idle one if possible."""
        others = [other for other in candidates if other is not newest]
        if not self._close_idle(others):
            self._close(next(iter(others), newest))

    def _close_idle(self, candidates: Iterable[OpenConnection]) -> bool:
        idle = next((other for other in candidates if not other.busy), None)
        if idle is not None:
            self._close(idle)
        return idle is not None

    def _close(self, connection: OpenConnection) -> None:
        self.closed(connection)
        connection.force_close()
        self._displaced += 1
        if self._clock() >= self._next_log_at:  # whoever goes on must not fill the log
            self._next_log_at = self._clock() + _LOG_SECONDS
            log.warning("connections.too_many", closed=self._displaced, open=self.count, remote=connection.address)
            self._displaced = 0
