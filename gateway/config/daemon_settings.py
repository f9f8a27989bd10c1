"""Converts sections of the configuration to the settings of chats and HTTP API, which do not read it themselves."""

from collections.abc import Sequence

from adapters.registry import is_built, manifest
from adapters.section import PlatformSection
from gateway.api.http.callers import CallerKey, Scope
from gateway.api.http.connection import ConnectionShares, IdleTimes, possible_connections
from gateway.api.http.server_state import ApiLimits, Intervals
from gateway.chats.access import AccessRules
from gateway.config.model import Config
from sessions.keys import DmScope


def platform_sections(config: Config) -> dict[str, PlatformSection]:
    """Of the platforms that are switched on and that this version has an adapter for."""
    return {name: section for name, section in config.platforms.by_name().items() if section.enabled and is_built(name)}


def access_rules(config: Config, platform: str) -> AccessRules:
    section = config.platforms.by_name()[platform]
    normal = manifest(platform).normal_user_id
    allowed = [normal(user) for user in section.allowed_users]
    named = [user for user in allowed if user != "*"]
    return AccessRules(
        allowed_users=frozenset(allowed),
        first_allowed=named[0] if named else None,
        allowed_chats=frozenset(section.allowed_chats),
        require_mention=section.require_mention,
        dm_scope=DmScope(section.dm_scope),
        owner=normal(section.owner),
        group_sessions_per_user=section.group_sessions_per_user,
        thread_sessions=section.thread_sessions,
        pair_strangers=section.unknown_users == "pair",
    )


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
