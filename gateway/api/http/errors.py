"""The errors of the API, all in one format, and the headers that every answer has."""

import json
import secrets
from collections.abc import Mapping

from aiohttp import web

from gateway.observe.redaction import redact

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    421: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "server_error",
}


REQUEST_ID = web.RequestKey("request_id", str)
"""The key under which a request has its id; log lines about the request contain it."""


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


def common_headers(request_id: str | None = None) -> Mapping[str, str]:
    """Returns the headers that every answer has."""
    return {"Server": "hermes-gateway", "X-Request-Id": request_id or new_request_id()}


class ApiError(Exception):
    """Ends a request with this status. `message` says what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def body(self) -> dict[str, object]:
        error = {"message": redact(self.message), "type": _TYPES[self.status], "code": self.code, "param": self.param}
        return {"error": error}

    def response(self) -> web.Response:
        return web.Response(
            status=self.status, text=json.dumps(self.body()), content_type="application/json", headers=self.headers
        )


def invalid(message: str, *, code: str = "invalid_request", param: str | None = None) -> ApiError:
    return ApiError(400, message, code=code, param=param)


def not_found(what: str) -> ApiError:
    return ApiError(404, f"There is no such {what}, or this key may not see it.", code="not_found")


def too_large(message: str) -> ApiError:
    # The rest of the body is not read, so the connection cannot serve another request.
    return ApiError(413, message, code="too_large", headers={"Connection": "close"})


def unavailable(message: str, *, code: str, after: int = 5) -> ApiError:
    return ApiError(503, message, code=code, headers={"Retry-After": str(after)})
