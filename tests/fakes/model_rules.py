"""What a Chat Completions endpoint refuses: the rules of the real API, and the gaps of those that speak less of it."""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from tests.fakes.model_replies import Failure, bad_request, no_model

JSON = dict[str, Any]
ROLES = {"system", "developer", "user", "assistant", "tool", "function"}


@dataclass(frozen=True, kw_only=True)
class Speaks:
    """What this endpoint knows. All true is OpenAI; local servers and proxies know less."""

    stream: bool = True
    stream_options: bool = True
    tools: bool = True
    json_schema: bool = True
    json_object: bool = True
    max_tokens: bool = True  # False: only max_completion_tokens, as newer models
    temperature: bool = True
    most_output: int | None = None
    models: frozenset[str] | None = None
    pictures: bool = True
    files: bool = True
    window: int | None = None  # in tokens of three bytes, as small models count; prompt and answer have to fit
    names_window: bool = True  # in its refusals


def refuse(body: JSON, speaks: Speaks) -> Failure | None:
    """The error that the endpoint answers to this request, or None."""
    return _speaks_less(body, speaks) or _bad_messages(body.get("messages")) or _bad_tools(body.get("tools"))


def _speaks_less(body: JSON, speaks: Speaks) -> Failure | None:
    if speaks.models is not None and body.get("model") not in speaks.models:
        return no_model(str(body.get("model")))
    gaps = (
        ("stream", bool(body.get("stream")) and not speaks.stream),
        ("stream_options", "stream_options" in body and not speaks.stream_options),
        ("temperature", "temperature" in body and not speaks.temperature),
    )
    for field, missing in gaps:
        if missing:
            return bad_request(f"Unsupported parameter: '{field}' is not supported.", param=field)
    if body.get("tools") and not speaks.tools:
        return bad_request(f"registry.ollama.ai/library/{body['model']} does not support tools")
    return _bad_format(body, speaks) or _bad_length(body, speaks) or _bad_parts(body, speaks) or _too_long(body, speaks)


def prompt_tokens(body: JSON) -> int:
    return len(json.dumps([body.get("messages"), body.get("tools")], ensure_ascii=False).encode()) // 3


def _too_long(body: JSON, speaks: Speaks) -> Failure | None:
    if speaks.window is None or prompt_tokens(body) + (body.get("max_tokens") or 0) <= speaks.window:
        return None
    if not speaks.names_window:
        return bad_request("Input is too long for requested model.")
    return bad_request(f"the request exceeds the available context size ({speaks.window} tokens), try increasing it")


def _bad_parts(body: JSON, speaks: Speaks) -> Failure | None:
    contents = [message.get("content") for message in body.get("messages") or () if isinstance(message, dict)]
    kinds = {part.get("type") for content in contents if isinstance(content, list) for part in content}
    if "image_url" in kinds and not speaks.pictures:
        return bad_request(
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
        )
    if "file" in kinds and not speaks.files:
        return bad_request("Invalid content type: 'file'. unsupported content part", param="messages")
    return None


def _bad_format(body: JSON, speaks: Speaks) -> Failure | None:
    kind = (body.get("response_format") or {}).get("type")
    known = {"json_schema": speaks.json_schema, "json_object": speaks.json_object}
    if known.get(kind, True):
        return None
    return bad_request(f"'response_format' of type '{kind}' is not supported by this model", param="response_format")


def _bad_length(body: JSON, speaks: Speaks) -> Failure | None:
    if "max_tokens" in body and not speaks.max_tokens:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        return bad_request(message, code="unsupported_parameter", param="max_tokens")
    wanted = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    if speaks.most_output is not None and wanted > speaks.most_output:
        message = (
            f"max_tokens is too large: {wanted}. This model supports at most {speaks.most_output} completion tokens, "
            f"whereas you provided {wanted}."
        )
        return bad_request(message, code="invalid_value", param="max_tokens")
    return None


def _bad_messages(messages: Any) -> Failure | None:
    if not isinstance(messages, list) or not messages:
        return bad_request(
            "Invalid 'messages': empty array. Expected an array with minimum length 1.", param="messages"
        )
    owed: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages.[{index}]"
        problem = _bad_message(message, owed, f"{where}.role")
        if problem:
            return bad_request(problem, param=where)
        if message["role"] == "tool":
            owed.discard(message["tool_call_id"])
        else:
            owed = {call["id"] for call in message.get("tool_calls") or ()}
    return _unanswered(owed)


def _unanswered(owed: set[str]) -> Failure | None:
    if not owed:
        return None
    return bad_request(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(sorted(owed))}",
        param="messages",
    )


def _bad_message(message: Any, owed: set[str], where: str) -> str:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        return f"Invalid value at {where}. Supported values are: 'system', 'assistant', 'user', 'function', 'tool'."
    if message["role"] == "tool":
        if message.get("tool_call_id") not in owed:
            return "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
        return "" if _has_content(message) else f"Missing content at {where}"
    if owed:
        failure = _unanswered(owed)
        return failure.message if failure else ""
    if message["role"] == "assistant":
        return _bad_assistant(message, where)
    return "" if _has_content(message) else f"Invalid value for 'content': expected a string, got null. ({where})"


def _bad_assistant(message: JSON, where: str) -> str:
    tool_calls = message.get("tool_calls")
    if tool_calls is None:
        return "" if message.get("content") is not None else f"Missing content at {where}"
    if not tool_calls:
        return "Invalid 'tool_calls': empty array. Expected an array with minimum length 1."
    return next((problem for problem in map(_bad_call, tool_calls) if problem), "")


def _bad_call(tool_call: Any) -> str:
    match tool_call:
        case {"id": str(key), "type": "function", "function": {"name": str(name), "arguments": str()}} if key and name:
            return ""
        case _:
            return "Invalid 'tool_calls': every call needs id, type and function with name and arguments as strings."


def _has_content(message: JSON) -> bool:
    return isinstance(message.get("content"), (str, list))


def _bad_tools(tools: Any) -> Failure | None:
    if tools is None:
        return None
    if not tools:
        return bad_request("Invalid 'tools': empty array. Expected an array with minimum length 1.", param="tools")
    problem = _tools_problem(json.dumps(tools))
    return bad_request(problem, code="invalid_function_parameters", param="tools") if problem else None


@lru_cache(maxsize=256)
def _tools_problem(tools: str) -> str:
    names: list[str] = []
    for tool in json.loads(tools):
        match tool:
            case {"type": "function", "function": {"name": str(name)} as function} if (
                name.replace("_", "").replace("-", "").isalnum()
            ):
                names.append(name)
            case _:
                return "Invalid 'tools': every tool is a function with a name of letters, digits, _ and -."
        schema = function.get("parameters", {"type": "object"})
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            return f"Invalid schema for function '{name}': {error.message}"
        if schema.get("type") != "object":
            return f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"'."
    return "" if len(set(names)) == len(names) else "Invalid 'tools': two functions have the same name."
