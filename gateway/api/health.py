"""Endpoints for operators: health, readiness, metrics, and the OpenAPI description as JSON and as a page."""

import asyncio
from importlib.resources import files
from typing import Any

from aiohttp import web

from gateway.api.http.callers import Scope
from gateway.api.http.endpoint import (
    ApiCall,
    Endpoint,
    EndpointAccess,
    EndpointAnswer,
    NoFields,
    ResponseModel,
)
from gateway.observe.metrics import CONTENT_TYPE
from sessions import gauges


class HealthAnswer(ResponseModel):
    status: str


class ReadyState(ResponseModel):
    """`waiting`: a part has not come up yet (status 503). `degraded`: a part that had come up has failed since
    (status 200)."""

    status: str
    waiting: list[str]
    parts: dict[str, Any]


async def healthz(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:  # noqa: ARG001  # every endpoint has the same parameter
    return EndpointAnswer(body=HealthAnswer(status="ok"))


async def readyz(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    found = call.server.api.readiness()
    body = ReadyState(
        status="waiting" if found.waiting else "degraded" if found.failing else "ready",
        waiting=list(found.waiting),
        parts=dict(found.parts),
    )
    return EndpointAnswer(body=body, status=503 if found.waiting else 200)


async def metrics(call: ApiCall[NoFields, NoFields]) -> web.StreamResponse:
    api = call.server.api
    api.readiness()  # it asks every platform, and so brings their gauges up to date
    numbers = await api.app.database.read(gauges.read_gauges)
    text = await asyncio.to_thread(api.app.metrics.expose, numbers, api.app.clock())
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


async def openapi(call: ApiCall[NoFields, NoFields]) -> web.StreamResponse:
    from gateway.api.http.openapi import describe
    from gateway.api.http.server import ENDPOINTS

    return web.json_response(describe(ENDPOINTS, call.server.api.version))


async def docs(call: ApiCall[NoFields, NoFields]) -> web.StreamResponse:  # noqa: ARG001
    page = files("gateway.api").joinpath("docs.html").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    return web.Response(text=page, content_type="text/html", headers={"Content-Security-Policy": policy})


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/healthz",
        run=healthz,
        summary="Whether the process answers",
        tag="Operations",
        access=EndpointAccess.OPEN,
        answers={200: HealthAnswer},
    ),
    Endpoint(
        method="GET",
        path="/readyz",
        run=readyz,
        summary="Whether every part has come up",
        tag="Operations",
        access=EndpointAccess.OPEN,
        answers={200: ReadyState, 503: ReadyState},
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        run=metrics,
        summary="Numbers for Prometheus",
        tag="Operations",
        scopes=(Scope.READ,),
        answers={200: "text/plain"},
    ),
    Endpoint(
        method="GET",
        path="/openapi.json",
        run=openapi,
        summary="This description",
        tag="Operations",
        access=EndpointAccess.HERE,
        answers={200: "application/json"},
    ),
    Endpoint(
        method="GET",
        path="/docs",
        run=docs,
        summary="The same, to read",
        tag="Operations",
        access=EndpointAccess.HERE,
        answers={200: "text/html"},
    ),
)
