"""What Discord refuses in a call. Each function returns the problems that it finds."""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

_CREATE = {
    "content",
    "nonce",
    "enforce_nonce",
    "allowed_mentions",
    "message_reference",
    "components",
    "flags",
    "attachments",
}
_EDIT = {"content", "allowed_mentions", "components", "flags", "attachments"}


def message_problems(body: Json, *, edit: bool = False, has_file: bool = False) -> list[str]:
    return list(_message(body, edit=edit, has_file=has_file))


def _message(body: Json, *, edit: bool, has_file: bool) -> Iterator[str]:
    for key in sorted(set(body) - (_EDIT if edit else _CREATE)):
        yield f"{key} is no field of a message"
    content = body.get("content") or ""
    if len(content) > 2000:
        yield "content is longer than 2,000"
    if not content.strip() and not has_file:
        yield "a message is empty"
    allowed: Json = body.get("allowed_mentions") or {"parse": ["everyone"]}
    if allowed.get("parse") or allowed.get("replied_user"):
        yield "allowed_mentions lets somebody be pinged"
    if len(str(body.get("nonce", ""))) > 25:
        yield "nonce is longer than 25"
    if "```" in content and content.count("```") % 2:
        yield "a fence is not closed"
    yield from _components(body.get("components") or [])


def _components(rows: list[Json]) -> Iterator[str]:
    if len(rows) > 5:
        yield "there are more than five rows of buttons"
    ids = [key.get("custom_id") for row in rows for key in row.get("components", [])]
    if len(set(ids)) != len(ids):
        yield "a custom_id is there twice"
    for row in rows:
        keys = row.get("components", [])
        if row.get("type") != 1 or not 1 <= len(keys) <= 5:
            yield "a row of buttons has one to five"
        for key in keys:
            if (
                key.get("type") != 2
                or not 1 <= len(key.get("label", "")) <= 80
                or not 1 <= len(key["custom_id"]) <= 100
            ):
                yield "a button has a label of 1 to 80 and a custom_id of 1 to 100 characters"


def command_problems(commands: list[Json]) -> list[str]:
    names = [command.get("name", "") for command in commands]
    found = ["a command is there twice"] if len(set(names)) != len(names) else []
    bad = [command for command in commands if not _is_good(command)]
    return [*found, *(f"the command {command.get('name')} has no good description or name" for command in bad)]


def _is_good(command: Json) -> bool:
    return 1 <= len(command.get("description", "")) <= 100 and str(command.get("name", "")).islower()
