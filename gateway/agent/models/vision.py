"""Pictures and files in a request, for endpoints that do not take them: the conversation goes on without, and the model is told so.

When a program has just sent them, its call is refused instead.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from gateway.agent.models.interface import JSON, ModelRefused, ModelRequest
from gateway.agent.models.text_tool_calls import with_instructions

BLIND = "You cannot look at pictures. Where one came with a message and matters, say so."
ONE_REFUSED = "The pictures and files in this conversation could not be shown to you. Where one matters, say so."
_MEDIA = frozenset({"image_url", "file", "input_audio"})
_PICTURES = re.compile(
    r"\bimages?\b|image_url|\baudio\b|input_audio|\bvision\b|multi-?modal|\bmmproj\b|content must be a string"
    r"|\bfiles?\b|\bpdfs?\b|\bdocuments?\b|content (?:part|type)|\btype\b.{0,40}\bfile\b",
    re.IGNORECASE,
)
_NEVER = re.compile(
    r"not (?:be )?(?:support|enabled|available|a multi)|n't support|unsupported (?:content|input|part)|unknown variant|only supported by"
    r"|no endpoints|at most 0 image|content must be a string|data required for image input",
    re.IGNORECASE,
)
_ONE = re.compile(
    r"unsupported image|image (?:format|type|size|data)|\bmime|media.?type|corrupt|invalid image", re.IGNORECASE
)


def is_refused(body: Mapping[str, Any], error_text: str) -> bool:
    """Returns whether the endpoint refuses the pictures of this request, for whatever reason."""
    return bool(_PICTURES.search(error_text)) and any(map(_has_picture, body["messages"]))


def is_blind(error_text: str) -> bool:
    """Returns whether a refusal of pictures means all of them, not just these."""
    # `this image type is not supported` matches both patterns, and is about one picture.
    return bool(_NEVER.search(error_text)) and not _ONE.search(error_text)


def without_pictures(messages: Sequence[JSON], why: str = BLIND) -> list[JSON]:
    """Returns the messages without their pictures, and tells the model so. Messages without pictures stay as they are."""
    if not any(map(_has_picture, messages)):
        return list(messages)
    return with_instructions([_text_only(each) if _has_picture(each) else each for each in messages], why)


def has_new_pictures(messages: Sequence[JSON]) -> bool:
    """Returns whether the newest user message has pictures or files."""
    last = next((message for message in reversed(messages) if message["role"] == "user"), None)
    return last is not None and _has_picture(last)


def pictures_refused(host: str, model: str) -> ModelRefused:
    return ModelRefused(f"{model} at {host} takes no pictures.", status=400, about_transcript=True)


def without_refused_pictures(request: ModelRequest) -> ModelRequest:
    return replace(request, messages=without_pictures(request.messages, ONE_REFUSED))


def _has_picture(message: Mapping[str, Any]) -> bool:
    content: Any = message.get("content")
    return isinstance(content, list) and any(part.get("type") in _MEDIA for part in cast(list[JSON], content))


def _text_only(message: JSON) -> JSON:
    """Returns the message without pictures. When only text is left, its content is one text: endpoints that take no pictures often take
    no parts either."""
    left = [part for part in message["content"] if part.get("type") not in _MEDIA]
    if all(part.get("type") == "text" for part in left):
        return {**message, "content": "\n".join(part["text"] for part in left)}
    return {**message, "content": left}
