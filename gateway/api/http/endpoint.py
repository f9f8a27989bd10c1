"""The declaration `@endpoint` above the function of each endpoint.

It says how a request is parsed and validated and who has access, and the OpenAPI description is made of it.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar, get_args

from aiohttp import web
from pydantic import BaseModel, ConfigDict

from gateway.api.http.body import BodyRules, read_body, require_json
from gateway.api.http.body_files import DetachedFiles
from gateway.api.http.callers import NOBODY, CallerKey, Scope, still_valid
from gateway.api.http.errors import ApiError, not_found, unavailable
from gateway.api.http.parsing import BodyHash, ReadBody, parse_body, parse_large_body, validate
from gateway.api.http.server_state import ServerState

PARAMETERS = {
    "deployment_id": r"^dep_(main|[0-9a-f]{24})$",
    "thread_id": r"^thread_[0-9a-f]{24}$",
    "run_id": r"^run_[0-9a-f]{24}$",
    "response_id": r"^resp_[0-9a-f]{24}$",
    "conversation_id": r"^conv_[0-9a-f]{24}$",
    "model": r"^.{1,256}$",
    "job_id": r"^[0-9a-f]{12}$",
    "platform": r"^[A-Za-z0-9_-]{1,64}$",
}
_LARGE = 262_144


class ResponseModel(BaseModel):
    """Base class of response bodies. Each is built when it is first used: a start would pay for all of them."""

    model_config = ConfigDict(defer_build=True)


class RequestModel(BaseModel):
    """Base class of request bodies. Unknown fields are an error, so that a misspelt field is noticed."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class NoFields(RequestModel):
    """A request without a body."""


class EndpointAccess(StrEnum):
    """Who may call an endpoint."""

    KEY = "key"
    HERE = "here"  # open on loopback, else a key
    OPEN = "open"
    HOOK = "hook"  # open, under any name: the platform proves who it is


B = TypeVar("B", bound=BaseModel)
Q = TypeVar("Q", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[B, Q]):
    """One validated request. `path` holds the ids of its address, `files` what was taken out of the body."""

    server: ServerState
    request: web.Request
    key: CallerKey
    path: Mapping[str, str]
    body: B
    query: Q
    body_hash: BodyHash
    files: DetachedFiles
    scopes: tuple[Scope, ...] = ()

    def require_access(self) -> CallerKey:
        """Returns the key as it is configured now. Raises ApiError when it was revoked, or has lost the scope of this call, since it
        began.
        """
        if self.key is NOBODY:
            return self.key
        key = still_valid(self.server.app.keys, self.key)
        if key is None:
            raise ApiError(401, "This key was revoked.", code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        if self.scopes and not key.scopes.intersection(self.scopes):
            raise ApiError(403, f"This key lacks the scope {' or '.join(self.scopes)}.", code="scope_missing")
        return key


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAnswer:
    body: BaseModel | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


EndpointFunction = Callable[[ApiCall[Any, Any]], Awaitable[EndpointAnswer | web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`scopes`: any one of them opens it. `responses`: status → body, or a content type. `refusals`: statuses besides the usual.

    `headers` may be sent, `response_headers` may come with the answer; name → what it is for.
    """

    method: str
    path: str
    function: EndpointFunction
    summary: str
    tag: str
    responses: Mapping[int, type[BaseModel] | str | None]
    scopes: tuple[Scope, ...] = ()
    access: EndpointAccess = EndpointAccess.KEY
    body: type[BaseModel] | None = None
    query: type[BaseModel] = NoFields
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    response_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    refusals: tuple[int, ...] = ()
    large: bool = False
    streams: bool = False


DECLARED: list[Endpoint] = []
"""All endpoints of the modules that were imported."""
F = TypeVar("F", bound=EndpointFunction)


def endpoint(
    method: str,
    path: str,
    summary: str,
    *,
    tag: str,
    responses: Mapping[int, type[BaseModel] | str | None],
    **more: Any,
) -> Callable[[F], F]:
    """Declares the function below as an endpoint. Its body and query are those of its parameter `call`: `ApiCall[Body, Query]`. `more`:
    further fields of `Endpoint`.
    """

    def declare(function: F) -> F:
        body, query = get_args(function.__annotations__["call"])
        DECLARED.append(
            Endpoint(
                method=method,
                path=path,
                function=function,
                summary=summary,
                tag=tag,
                responses=responses,
                body=None if body is NoFields else body,
                query=query,
                **more,
            )
        )
        return function

    return declare


async def handle(endpoint: Endpoint, server: ServerState, request: web.Request, key: CallerKey) -> web.StreamResponse:
    """Checks the request against the declaration, calls the endpoint, and writes its answer."""
    path = dict(request.match_info)
    for name, value in path.items():
        if name in PARAMETERS and re.fullmatch(PARAMETERS[name], value) is None:
            raise not_found(name.removesuffix("_id"))
    query = validate(endpoint.query, dict(request.query))
    async with _body(endpoint, server, request, key) as read:
        call = ApiCall(
            server=server,
            request=request,
            key=key,
            path=path,
            body=read.body,
            query=query,
            body_hash=read.body_hash,
            files=read.files,
            scopes=endpoint.scopes,
        )
        result = await endpoint.function(call)
        if isinstance(result, EndpointAnswer) or not result.prepared:
            call.require_access()  # an answer may take minutes, and the key may have been revoked since
    if isinstance(result, web.StreamResponse):
        return result
    text = None if result.body is None else result.body.model_dump_json().encode()
    kind = None if text is None else "application/json"
    return web.Response(status=result.status, body=text, content_type=kind, headers=dict(result.headers))


@asynccontextmanager
async def _body(
    endpoint: Endpoint, server: ServerState, request: web.Request, key: CallerKey
) -> AsyncGenerator[ReadBody]:
    """Yields the body, parsed and validated. Only a few calls may hold a large one at the same time."""
    model, limits = endpoint.body or NoFields, server.limits
    if endpoint.body is None or not (request.body_exists or needs_body(model)):
        yield ReadBody(body=model())
        return
    require_json(request)
    limit, seconds = server.large_body_bytes if endpoint.large else limits.body_bytes, server.intervals.body
    async with AsyncExitStack() as call:
        if request.content_length is None or request.content_length > _LARGE:
            call.callback(server.give_back_memory)  # also for a body that is refused halfway: its pieces were in memory
        async with read_body(request, body_rules(server, key, limit)) as body:
            if body.size <= _LARGE:
                read = parse_body(model, body)
            else:
                try:
                    await call.enter_async_context(server.large_bytes.acquire(key.name, body.size, seconds))
                except TimeoutError:
                    raise unavailable("Too many large bodies are worked on.", code="too_much_at_once") from None
                files = DetachedFiles(server.app.home)
                call.callback(files.close)
                read = await server.parse(parse_large_body, model, body, files)  # the loop goes on meanwhile
        yield read


def body_rules(server: ServerState, key: CallerKey, limit: int) -> BodyRules:
    """Returns the rules for bodies of this caller."""
    is_known = key is not NOBODY
    return BodyRules(
        folder=server.app.home,
        places=server.upload_places if is_known else server.hook_places,
        rate=server.reading_rate,
        caller=key.name,
        limit=limit,
        seconds=server.intervals.body if is_known else server.intervals.hook_body,
        done=server.give_back_memory,
    )


def needs_body(model: type[BaseModel]) -> bool:
    """Returns whether the model has a required field. Other requests may come without a body."""
    return any(field.is_required() for field in model.model_fields.values())
