"""Decides where a job's answers are sent."""

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import Connection

from sessions import runs, store
from sessions.errors import Invalid
from sessions.jobs.records import LOCAL, Job
from sessions.keys import Address, ChatKind, SessionKey
from sessions.records import Route


def require_target(deliver: str, platforms: Collection[str]) -> str:
    """Checks a target: `local` or `<platform>[:<chat>[:<thread>]]`, of a platform that is switched on. Raises Invalid."""
    platform, _, rest = deliver.partition(":")
    if deliver == LOCAL:
        return deliver
    if platform not in platforms:
        known = ", ".join([LOCAL, *sorted(platforms)])
        raise Invalid(
            f"deliver cannot be {deliver!r}. Allowed: {known}, each platform with :<chat> and :<thread> after it."
        )
    if deliver.endswith(":") or rest.startswith(":"):
        raise Invalid(f"deliver cannot be {deliver!r}: a chat's id follows the colon.")
    return deliver


def target_of(conn: Connection, job: Job) -> Route | None:
    """Returns the route of this job's answers now; None: nowhere, or it is not known where."""
    if job.deliver == LOCAL:
        return None
    platform, _, rest = job.deliver.partition(":")
    # The route in which it was made counts as long as nobody has changed the target.
    if job.route is not None and _written(job.route) == job.deliver:
        return job.route
    if not rest:
        return runs.last_route(conn, owner_key(platform))
    chat, _, thread = rest.partition(":")
    kind = _kind(conn, platform, chat)
    return Route(address=Address(platform=platform, kind=kind, chat_id=chat, thread_id=thread or None))


def destination(job: Job) -> str:
    """Returns where the answers of a job are read: "They are …"."""
    if job.deliver != LOCAL:
        return f"sent to {job.deliver}"
    if job.thread_id is not None:
        return f"kept in the thread {job.thread_id}"
    if job.session_key != str(SessionKey.job(job.id)):
        return f"kept in the session {job.session_key}"
    return f"kept: `hermes jobs show {job.id}` prints them, and an open terminal shows them"


def deliver_to(route: Route) -> tuple[str, Route]:
    """Returns the target of a job that was made in a chat: as text, and as a route."""
    return _written(route), replace(route, reply_to=None)  # weeks later nobody knows the message any more


def owner_key(platform: str) -> str:
    """Returns the session key of the owner's conversation on this platform."""
    return str(SessionKey(agent="main", scope=platform, kind=ChatKind.DM))


def owner_route(conn: Connection, platforms: Collection[str]) -> Route | None:
    """Returns a route by which the owner can be told something: to the owner's chat on one of these platforms."""
    routes = (runs.last_route(conn, owner_key(platform)) for platform in sorted(platforms))
    return next((route for route in routes if route is not None), None)


def _written(route: Route) -> str:
    parts = [
        route.address.platform,
        route.address.chat_id,
        *([route.address.thread_id] if route.address.thread_id else []),
    ]
    return ":".join(parts)


def _kind(conn: Connection, platform: str, chat: str) -> ChatKind:
    """Returns the kind of the chat if it is known, else a guess, which decides about the pace only."""
    own = runs.last_route(conn, owner_key(platform))
    if own is not None and own.address.chat_id == chat:
        return ChatKind.DM
    for kind in ChatKind:
        if store.recent(conn, key=str(SessionKey(agent="main", scope=platform, kind=kind, chat_id=chat)), limit=1):
            return kind
    return ChatKind.GROUP if chat.startswith("-") else ChatKind.DM  # Telegram's groups have negative ids
