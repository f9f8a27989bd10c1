"""Endpoints that platforms call: deliveries, and the question that they ask when a webhook is registered. The adapter checks signatures
and tokens.
"""

from typing import Any

from aiohttp import web
from pydantic import ConfigDict

from adapters.base import DeliveryError
from gateway.api.http.body import read_body
from gateway.api.http.endpoint import ApiCall, EndpointAccess, NoFields, RequestModel, body_rules, endpoint
from gateway.api.http.errors import ApiError, not_found, unavailable
from gateway.observe.logging import get_logger

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
