"""Endpoints for operators: health, readiness, metrics, and the OpenAPI description as JSON and as a page. Endpoints that platforms call:
deliveries, and the question that they ask when a webhook is registered; the adapter checks signatures and tokens.
"""

import asyncio
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from aiohttp import web
from pydantic import ConfigDict

from adapters.base import DeliveryError
from gateway.api.http.body import read_body
from gateway.api.http.callers import Scope
from gateway.api.http.endpoint import (
    ApiCall,
    EndpointAccess,
    EndpointAnswer,
    NoFields,
    RequestModel,
    ResponseModel,
    body_rules,
    endpoint,
)
from gateway.api.http.errors import ApiError, not_found, unavailable
from gateway.chats.runner import PlatformState
from gateway.observe.logging import get_logger
from gateway.observe.metrics import CONTENT_TYPE
from sessions import gauges, workers
from sessions.leases import HOUSE

_WELL = frozenset({PlatformState.CONNECTED, PlatformState.STANDBY, "available"})


class HealthAnswer(ResponseModel):
    status: str


class ReadyState(ResponseModel):
    """`waiting`: a part has not come up yet (status 503). `degraded`: a part that had come up has failed since
    (status 200)."""

    status: str
    waiting: list[str]
    parts: dict[str, Any]


@endpoint(
    "GET",
    "/healthz",
    "Whether the process answers",
    tag="Operations",
    access=EndpointAccess.OPEN,
    responses={200: HealthAnswer},
)
async def healthz(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:  # noqa: ARG001  # every endpoint has the same parameter
    return EndpointAnswer(body=HealthAnswer(status="ok"))


@endpoint(
    "GET",
    "/readyz",
    "Whether every part has come up",
    tag="Operations",
    access=EndpointAccess.OPEN,
    responses={200: ReadyState, 503: ReadyState},
)
async def readyz(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    app = call.server.app
    running = app.chats.running if app.chats is not None else {}
    # A platform that was connected once counts as up: a later outage, also of the database, is reported in the body, and must not make an
    # orchestrator restart us, which would help nobody.
    up = {name for name, platform in running.items() if platform.health.was_up}
    waiting = [name for name in app.config.platforms.in_use() if name not in up]
    parts = app.parts()
    failing = [name for name, part in parts.items() if name not in waiting and part["state"] not in _WELL]
    status = "waiting" if waiting else "degraded" if failing else "ready"
    return EndpointAnswer(body=ReadyState(status=status, waiting=waiting, parts=parts), status=503 if waiting else 200)


@endpoint(
    "GET", "/metrics", "Numbers for Prometheus", tag="Operations", scopes=(Scope.READ,), responses={200: "text/plain"}
)
async def metrics(call: ApiCall[NoFields, NoFields]) -> web.StreamResponse:
    app = call.server.app
    app.parts()  # it asks every platform, and so brings their gauges up to date
    # Of a team, one home tells the numbers of the database: that of whoever keeps the house. They would be added up otherwise.
    here = app.holders.is_held(HOUSE) or await app.database.read(workers.holds, HOUSE, str(app.home), app.clock())
    numbers = await app.database.read(gauges.read_gauges) if here else None
    worker = app.slot if app.has_siblings else None
    text = await asyncio.to_thread(app.metrics.expose, numbers, app.clock(), worker=worker)
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


@endpoint(
    "GET",
    "/openapi.json",
    "This description",
    tag="Operations",
    access=EndpointAccess.HERE,
    responses={200: "application/json"},
)
async def openapi(call: ApiCall[NoFields, NoFields]) -> web.StreamResponse:  # noqa: ARG001
    from gateway.api.http.openapi import describe
    from gateway.api.http.server import ENDPOINTS

    return web.json_response(describe(ENDPOINTS, version("hermes-gateway")))


@endpoint(
    "GET", "/docs", "The same, to read", tag="Operations", access=EndpointAccess.HERE, responses={200: "text/html"}
)
async def docs(call: ApiCall[NoFields, NoFields]) -> web.StreamResponse:  # noqa: ARG001
    page = files("gateway.api").joinpath("docs.html").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    return web.Response(text=page, content_type="text/html", headers={"Content-Security-Policy": policy})


log = get_logger(__name__)

HOOK_BYTES = 4_194_304
"""Meta sends up to three million bytes at once."""


@endpoint(
    "POST",
    "/webhooks/{platform}",
    "Where a platform delivers; it signs what it sends",
    tag="Operations",
    access=EndpointAccess.HOOK,
    responses={200: None},
    refusals=(413, 415),
)
async def webhook(call: ApiCall[NoFields, NoFields]) -> web.StreamResponse:
    """Hands the delivery to the adapter, which checks its signature and stores what it holds. Raises ApiError 404 when the platform has no
    webhook, 503 when it is starting, 401 when the signature is wrong.
    """
    chats = call.server.app.chats
    receive = chats.webhook(call.path["platform"]) if chats is not None else None
    if receive is None:
        raise _nobody_there(call)
    async with read_body(call.request, body_rules(call.server, call.key, HOOK_BYTES)) as body:
        raw = body.read()
    # No platform sends others; they could not even be compared with a signature.
    headers = {name: value for name, value in call.request.headers.items() if value.isascii()}
    try:
        reply = await receive(headers, raw)
    except DeliveryError as error:
        raise unavailable(str(error), code="not_now") from error
    if reply is None:
        if not call.server.wrong_signatures.take(call.path["platform"]):  # whoever goes on must not fill the log
            log.warning("webhook.refused", platform=call.path["platform"], remote=call.request.remote)
        raise ApiError(401, "The signature is wrong.", code="bad_signature")
    return web.Response(text=reply.text, content_type=reply.content_type)


def _nobody_there(call: ApiCall[Any, Any]) -> ApiError:
    """A platform gives up what is answered 404; after a 503 it tries again."""
    name, app = call.path["platform"], call.server.app
    if name in app.config.platforms.in_use() and (app.chats is None or name not in app.chats.running):
        return unavailable("This platform is starting. Try again.", code="starting")
    return not_found("webhook")


class HandshakeQuery(RequestModel):
    """The platform chooses the names of the fields, so all are allowed."""

    model_config = ConfigDict(extra="allow")


@endpoint(
    "GET",
    "/webhooks/{platform}",
    "What a platform asks when the webhook is registered",
    tag="Operations",
    access=EndpointAccess.HOOK,
    responses={200: "text/plain"},
)
async def handshake(call: ApiCall[NoFields, HandshakeQuery]) -> web.StreamResponse:
    """Returns what the platform expects when the webhook is registered. Raises ApiError 404 when the platform has no webhook, 403 when the
    verify token is not the configured one.
    """
    chats = call.server.app.chats
    answer = chats.handshake(call.path["platform"]) if chats is not None else None
    if answer is None:
        raise _nobody_there(call)
    reply = answer(dict(call.request.query))
    if reply is None:
        raise ApiError(403, "The verify token is not the configured one.", code="bad_verify_token")
    return web.Response(text=reply.text, content_type=reply.content_type)
