"""Writes the declarations of the endpoints as OpenAPI 3.1."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.api.http.endpoint import PARAMETERS, Endpoint, EndpointAccess, needs_body

JSON = dict[str, Any]
_ERROR: JSON = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": "string"},
                "param": {"type": ["string", "null"]},
            },
        }
    },
}
_EVENTS = "text/event-stream"
_EVENT: JSON = {
    "type": "object",
    "required": ["data"],
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}
"""Of a stream, OpenAPI 3.1 describes the single event."""
_REASONS = {
    200: "Done",
    201: "Created",
    202: "Accepted",
    204: "Gone",
    400: "The request is wrong",
    401: "No key, or a wrong one",
    403: "Not allowed",
    404: "Not there",
    409: "Does not fit the present state",
    413: "Too large",
    415: "The body is packed",
    422: "The Idempotency-Key was used with another body, or there is nothing new in this one",
    429: "Too often",
    503: "Not now",
}


_AGAIN: JSON = {
    "Retry-After": {
        "description": "Seconds after which it makes sense to try again",
        "required": True,
        "schema": {"type": "integer"},
    }
}
_WITH: dict[int, JSON] = {429: {"headers": _AGAIN}, 503: {"headers": _AGAIN}}


def describe(endpoints: Sequence[Endpoint], version: str) -> JSON:
    inputs = {model for each in endpoints for model in (each.body, each.query) if model is not None}
    outputs = {model for each in endpoints for model in each.responses.values() if isinstance(model, type)}
    ordered = [
        *((model, "validation") for model in sorted(inputs, key=_name)),
        *((model, "serialization") for model in sorted(outputs, key=_name)),
    ]
    refs, shared = models_json_schema(ordered, ref_template="#/components/schemas/{model}")  # pyright: ignore[reportArgumentType]
    schemas: JSON = {**shared.get("$defs", {}), "Error": _ERROR}
    paths: JSON = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, refs, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "hermes-gateway", "version": version},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _name(model: type[BaseModel]) -> str:
    return model.__name__


_HEADERS: dict[str, JSON] = {
    "X-Hermes-Session-Id": {"type": "string", "pattern": "^[!-~]([ -~]{0,254}[!-~])?$"},
    "Idempotency-Key": {"type": "string", "pattern": "^[!-~]{1,256}$"},
    "Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,15}$"},
}


def _operation(each: Endpoint, refs: Any, schemas: JSON) -> JSON:
    query = schemas[refs[each.query, "validation"]["$ref"].rpartition("/")[2]]
    fields: JSON = query.get("properties", {})
    parameters: list[JSON] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": PARAMETERS[name]}}
        for name in re.findall(r"{(\w+)}", each.path)
    ]
    parameters += [
        {"name": name, "in": "query", "required": name in query.get("required", ()), "schema": _not_null(field)}
        for name, field in fields.items()
    ]
    parameters += [
        {"name": name, "in": "header", "required": False, "description": text, "schema": _HEADERS[name]}
        for name, text in each.headers.items()
    ]
    operation: JSON = {
        "operationId": each.function.__name__,
        "summary": each.summary,
        "tags": [each.tag],
        "parameters": parameters,
        "responses": _responses(each, refs),
        "security": [{"key": []}] if each.access is EndpointAccess.KEY else [],
    }
    if each.body is not None:
        schema = refs[each.body, "validation"]
        operation["requestBody"] = {
            "required": needs_body(each.body),
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _responses(each: Endpoint, refs: Any) -> JSON:
    """Returns the endpoint's answers, then the errors that any request may get, and the endpoint's own."""
    found: JSON = {}
    for status, model in each.responses.items():
        answer: JSON = {"description": _REASONS[status]}
        if isinstance(model, str):
            answer["content"] = {model: {"schema": _raw(model)}}
        elif model is not None:
            answer["content"] = {"application/json": {"schema": refs[model, "serialization"]}}
        if each.response_headers:
            answer["headers"] = {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in each.response_headers.items()
            }
        if each.streams and status == 200:
            answer.setdefault("content", {})[_EVENTS] = {"schema": _raw(_EVENTS)}
        found[str(status)] = answer
    errors = {400, 403, 404, 503, *each.refusals}
    errors |= {401, 429} if each.access is not EndpointAccess.OPEN else set()
    errors |= {415} if each.body is not None else set()
    shape: JSON = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for status in sorted(errors - set(each.responses)):
        found[str(status)] = {"description": _REASONS[status], "content": shape, **_WITH.get(status, {})}
    return found


def _raw(media_type: str) -> JSON:
    if media_type == _EVENTS:
        return _EVENT
    return {} if "json" in media_type else {"type": "string"}


def _not_null(field: JSON) -> JSON:
    """Returns the schema of a query field without `null`, which a query cannot send."""
    options: list[JSON] = [option for option in field.get("anyOf", ()) if option != {"type": "null"}]
    rest = {name: value for name, value in field.items() if name not in {"anyOf", "default", "title"}}
    return {**rest, **options[0]} if len(options) == 1 else rest
