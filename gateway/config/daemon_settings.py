"""Converts sections of the configuration to the settings of chats and HTTP API, which do not read it themselves."""

from collections.abc import Sequence

from gateway.api.http.callers import CallerKey, Scope
from gateway.api.http.connection import ConnectionShares, IdleTimes, possible_connections
from gateway.api.http.server_state import ApiLimits, Intervals
from gateway.config.model import Config


def caller_keys(config: Config, generated: CallerKey | None) -> Sequence[CallerKey]:
    """Those that are configured; where none is, the one in the home."""
    if generated is not None and not config.api.keys:
        return (generated,)
    return [
        CallerKey(
            name=key.name,
            secret=key.key.get_secret_value(),
            scopes=frozenset(Scope(scope) for scope in key.scopes),
            deployments=frozenset(key.deployments),
        )
        for key in config.api.keys
    ]


def api_limits(config: Config) -> ApiLimits:
    limits = config.limits
    return ApiLimits(
        message_bytes=limits.message_bytes,
        attachment_bytes=limits.attachment_bytes,
        queue_per_session=limits.queue_per_chat,
        connections=ConnectionShares(
            total=possible_connections(config.api.connections), per_address=config.api.connections_per_address
        ),
    )


def intervals(config: Config) -> Intervals:
    seconds = config.api.idle_seconds
    return Intervals(idle=IdleTimes(with_key=seconds, without_key=min(seconds, IdleTimes().without_key)))
