# pyright: basic
"""HTTP as the Bot API speaks it: parameters in every encoding, refusals, and what may go wrong on the way."""

import asyncio
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

Json = dict[str, Any]


class ApiRefusal(Exception):
    def __init__(self, status: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.status, self.description, self.parameters = status, description, parameters


class TelegramUpload(bytes):
    filename = ""

    @classmethod
    def of(cls, field: web.FileField) -> Self:
        upload = cls(field.file.read())
        upload.filename = field.filename
        return upload


@dataclass(slots=True, kw_only=True)
class Fault:
    """Goes wrong `times` times. `drop` cuts the connection "before" or "after" the call took effect; `wait` holds the call, or
    with `drop="after"` its answer, until it is set; `raw` is answered as it stands, as a proxy on the way would; with `poison` the call takes
    effect and its answer is `poisoned`."""

    method: str
    times: int
    status: int = 500
    description: str = "Internal Server Error"
    retry_after: int | None = None
    drop: str = ""
    raw: str = ""
    wait: asyncio.Event | None = None
    poison: bool = False


async def parameters(request: web.Request) -> Json:
    params: Json = dict(request.query)
    if request.content_type == "application/json":
        return params | await request.json()
    for name, value in (await request.post()).items():
        params[name] = TelegramUpload.of(value) if isinstance(value, web.FileField) else value
    return params


def refusal(refused: ApiRefusal) -> web.Response:
    body: Json = {"ok": False, "error_code": refused.status, "description": refused.description}
    if refused.parameters:
        body["parameters"] = refused.parameters
    return web.json_response(body, status=refused.status)
