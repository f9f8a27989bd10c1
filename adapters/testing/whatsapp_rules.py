"""What Meta refuses in a message to the Cloud API. Each function returns the problems that it finds."""

from collections.abc import Iterator
from typing import Any

from adapters.testing.published_schemas import schema_problems

Json = dict[str, Any]

_HEAD = {"messaging_product", "recipient_type", "to", "recipient", "type", "context"}
_READ = {"messaging_product", "status", "message_id", "typing_indicator"}
_MEDIA = {"image", "document", "audio", "video"}


def problems(body: Json) -> list[str]:
    if "status" in body:
        return list(_read(body))
    dated = {"to": body["recipient"], **body} if "recipient" in body else body  # younger than the published schemas
    return [*_message(body), *schema_problems("whatsapp", "POST messages", dated)]


def command_problems(body: Json) -> list[str]:
    return schema_problems("whatsapp", "POST conversational_automation", body)


def _read(body: Json) -> Iterator[str]:
    yield from _keys(body, _READ, "a read mark")
    if body.get("messaging_product") != "whatsapp" or body["status"] != "read" or not body.get("message_id"):
        yield "a read mark needs messaging_product, status read and message_id"
    if body.get("typing_indicator", {"type": "text"}) != {"type": "text"}:
        yield "typing_indicator has the type text"


def _message(body: Json) -> Iterator[str]:
    kind = str(body.get("type"))
    yield from _keys(body, {*_HEAD, kind}, "a message")
    yield from _head(body)
    if isinstance(body.get(kind), dict):
        yield from _contents(kind, body[kind])
    else:
        yield f"{kind} is missing"


def _head(body: Json) -> Iterator[str]:
    if body.get("messaging_product") != "whatsapp":
        yield "messaging_product is whatsapp"
    if body.get("recipient_type", "individual") not in {"individual", "group"}:
        yield "recipient_type is individual or group"
    if ("to" in body) == ("recipient" in body):
        yield "exactly one of to and recipient is needed"
    if "to" in body and body.get("recipient_type") != "group" and not str(body["to"]).isdecimal():
        yield "to is a number in digits"
    if "context" in body and (set(body["context"]) != {"message_id"} or not body["context"]["message_id"]):
        yield "context holds a message_id"


def _contents(kind: str, inside: Json) -> Iterator[str]:
    match kind:
        case "text":
            yield from _keys(inside, {"body", "preview_url"}, "text")
            yield from _text(inside.get("body"), 4096, "text.body")
        case "interactive":
            yield from _interactive(inside)
        case "reaction":
            yield from _keys(inside, {"message_id", "emoji"}, "reaction")
        case _ if kind in _MEDIA:
            allowed = {"id", "voice"} if kind == "audio" else {"id", "caption"}
            yield from _keys(inside, allowed | ({"filename"} if kind == "document" else set()), kind)
            if "caption" in inside:
                yield from _text(inside["caption"], 1024, "caption")
        case _:
            yield f"there is no type {kind}"


def _interactive(inside: Json) -> Iterator[str]:
    yield from _keys(inside, {"type", "body", "action"}, "interactive")
    if inside.get("type") != "button":
        yield "only buttons are known here"
        return
    yield from _text(inside.get("body", {}).get("text"), 1024, "interactive.body.text")
    buttons = inside.get("action", {}).get("buttons", [])
    titles = [button.get("reply", {}).get("title", "") for button in buttons]
    if not 1 <= len(buttons) <= 3:
        yield "there are one to three buttons"
    if any(not 1 <= len(title) <= 20 for title in titles) or len(set(titles)) != len(titles):
        yield "the title of a button has 1 to 20 characters, and is there once"
    if any(not 1 <= len(button.get("reply", {}).get("id", "")) <= 256 for button in buttons):
        yield "the id of a button has 1 to 256 characters"


def _text(text: Any, most: int, where: str) -> Iterator[str]:
    if not isinstance(text, str) or not text.strip():
        yield f"{where} is empty"
    elif len(text.encode("utf-16-le", "surrogatepass")) // 2 > most:
        yield f"{where} is longer than {most}"


def _keys(body: Json, allowed: set[str], where: str) -> Iterator[str]:
    for key in sorted(set(body) - allowed):
        yield f"{key} is no field of {where}"
