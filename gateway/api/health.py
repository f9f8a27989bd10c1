"""Endpoints for operators: health, readiness, metrics, and the OpenAPI description as JSON and as a page."""

import asyncio
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from aiohttp import web

from gateway.api.http.callers import Scope
from gateway.api.http.endpoint import (
    ApiCall,
    EndpointAccess,
    EndpointAnswer,
    NoFields,
    ResponseModel,
    endpoint,
)
from gateway.chats.runner import PlatformState
from gateway.observe.metrics import CONTENT_TYPE
from sessions import gauges

_WELL = frozenset({PlatformState.CONNECTED, "available"})


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
    numbers = await app.database.read(gauges.read_gauges)
    text = await asyncio.to_thread(app.metrics.expose, numbers, app.clock())
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
