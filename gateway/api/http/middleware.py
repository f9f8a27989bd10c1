"""What every request passes before its endpoint: host check, key, scope, throttle. It also formats every error."""

import math
from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from structlog.contextvars import bind_contextvars, clear_contextvars

from gateway.api.http.callers import NOBODY, CallerKey, find_key, from_this_machine, network_of
from gateway.api.http.connection import connection_of
from gateway.api.http.endpoint import Endpoint, EndpointAccess, handle
from gateway.api.http.errors import REQUEST_ID, ApiError, common_headers, invalid, new_request_id, unavailable
from gateway.api.http.server_state import ServerState
from gateway.observe.logging import get_logger
from sessions.errors import Busy, Forbidden, Invalid, NotFound, Unusable

log = get_logger(__name__)


def identify(server: ServerState, request: web.Request) -> CallerKey:
    """Returns the key of the request. Raises ApiError when there is no valid one."""
    scheme, _, presented = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not presented.strip():
        raise _denied("Send the key as Authorization: Bearer KEY. A browser can open /docs.")
    key = find_key(server.app.keys, presented.strip())
    if key is not None:
        return key
    where = network_of(request.remote or "")
    already_logged = server.wrong_keys.is_throttled(where)
    wait = server.wrong_keys.take(where)
    if not already_logged:  # whoever goes on must not fill the log
        log.warning("auth.throttled" if wait else "auth.denied", remote=request.remote, path=request.path)
    if wait:
        raise _slow_down("Too many wrong keys from this address.", wait, code="too_many_wrong_keys")
    raise _denied("This key is not known.")


def _denied(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _slow_down(message: str, seconds: float, *, code: str) -> ApiError:
    return ApiError(429, message, code=code, headers={"Retry-After": str(max(1, math.ceil(seconds)))})


def admit(server: ServerState, endpoint: Endpoint | None, request: web.Request) -> CallerKey:
    """Returns the key of the caller. Raises ApiError when it may not call this. Unknown paths need a key too, so that nobody can probe."""
    access = EndpointAccess.KEY if endpoint is None else endpoint.access
    if access is EndpointAccess.HOOK:  # a proxy may pass it on under any host; the platform signs what it sends
        return NOBODY
    server.host_check.check(request)
    if access is EndpointAccess.OPEN or (access is EndpointAccess.HERE and from_this_machine(request)):
        return NOBODY
    key = identify(server, request)
    if not connection_of(request).admit(key.name):
        raise _slow_down("This key has too many connections open.", 1, code="too_many_connections")
    if wait := server.calls.take(key.name):
        raise _slow_down("This key calls too often.", wait, code="rate_limited")
    if endpoint is not None and endpoint.scopes and not key.scopes.intersection(endpoint.scopes):
        raise ApiError(403, f"This key lacks the scope {' or '.join(endpoint.scopes)}.", code="scope_missing")
    return key


def middleware(server: ServerState, endpoints: Mapping[Handler, Endpoint]) -> Middleware:
    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        endpoint = endpoints.get(request.match_info.handler)
        request[REQUEST_ID] = new_request_id()
        clear_contextvars()
        bind_contextvars(request_id=request[REQUEST_ID])  # each request is a task of its own
        try:
            key = admit(server, endpoint, request)
            if endpoint is None:
                return await handler(request)  # it raises what the router found: 404 or 405
            return await handle(endpoint, server, request, key)
        except ConnectionError:  # nobody is there to be answered
            raise
        except Exception as error:  # noqa: BLE001  # the edge: whatever it is, the caller gets an answer and the daemon goes on
            return error_response(error, request).response()

    return guarded


async def add_common_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the headers that every answer has, just before it is sent."""
    response.headers.update(common_headers(request.get(REQUEST_ID)))


def error_response(error: Exception, request: web.Request) -> ApiError:
    match error:
        case ApiError():
            return error
        case web.HTTPMethodNotAllowed():
            headers = {"Allow": error.headers.get("Allow", "")}
            return ApiError(405, f"{request.method} does not work here.", code="method_not_allowed", headers=headers)
        case web.HTTPNotFound():
            return ApiError(404, "There is nothing at this address.", code="not_found")
        case NotFound():
            return ApiError(404, str(error), code="not_found")
        case Busy():
            return ApiError(409, str(error), code="busy")
        case Forbidden():
            return ApiError(403, str(error), code="forbidden")
        case Invalid():
            return invalid(str(error))
        case Unusable():
            return unavailable(str(error), code="database_unavailable")
        case _:
            log.error("request.failed", path=request.path, exc_info=error)
            return unavailable("Something went wrong inside. The gateway's log says what.", code="internal_error")
