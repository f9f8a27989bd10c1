"""What Slack refuses in a call of the Web API. Each function returns the problems that it finds."""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

SCOPES = {
    "chat.postMessage": "chat:write",
    "chat.postEphemeral": "chat:write",
    "chat.update": "chat:write",
    "chat.delete": "chat:write",
    "chat.startStream": "chat:write",
    "chat.appendStream": "chat:write",
    "chat.stopStream": "chat:write",
    "agents.sessions.setStatus": "assistant:write",
    "assistant.threads.setStatus": "assistant:write",
    "reactions.add": "reactions:write",
    "reactions.remove": "reactions:write",
    "users.info": "users:read",
    "conversations.open": "im:write",
    "conversations.info": "channels:read",
    "conversations.replies": "channels:history",
    "files.info": "files:read",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
}
"""The permission that each method needs. Those that are missing here need none."""

_FIELDS = {
    "auth.test": (set[str](), set[str]()),
    "chat.postMessage": ({"channel", "text"}, {"blocks", "thread_ts", "unfurl_links", "unfurl_media", "mrkdwn"}),
    "chat.postEphemeral": ({"channel", "user", "text"}, {"blocks", "thread_ts"}),
    "chat.update": ({"channel", "ts", "text"}, {"blocks"}),
    "chat.delete": ({"channel", "ts"}, set[str]()),
    "chat.startStream": ({"channel", "thread_ts"}, {"markdown_text", "recipient_user_id", "recipient_team_id"}),
    "chat.appendStream": ({"channel", "ts", "markdown_text"}, set[str]()),
    "chat.stopStream": ({"channel", "ts"}, {"markdown_text", "blocks", "session_status"}),
    "agents.sessions.setStatus": ({"channel_id", "status"}, {"thread_ts", "title"}),
    "assistant.threads.setStatus": ({"channel_id", "thread_ts", "status"}, {"loading_messages"}),
    "reactions.add": ({"channel", "timestamp", "name"}, set[str]()),
    "reactions.remove": ({"channel", "timestamp", "name"}, set[str]()),
    "users.info": ({"user"}, set[str]()),
    "conversations.open": ({"users"}, set[str]()),
    "conversations.info": ({"channel"}, set[str]()),
    "conversations.replies": ({"channel", "ts"}, {"limit", "cursor", "oldest", "latest", "inclusive"}),
    "files.info": ({"file"}, set[str]()),
    "files.getUploadURLExternal": ({"filename", "length"}, set[str]()),
    "files.completeUploadExternal": ({"files"}, {"channel_id", "thread_ts", "initial_comment"}),
    "views.publish": ({"user_id", "view"}, set[str]()),
    "apps.connections.open": (set[str](), set[str]()),
}
_STATUSES = {"processing", "active", "suspended", "closed"}


def problems(method: str, body: Json) -> list[str]:
    needed, allowed = _FIELDS[method]
    found = [f"{method}: {name} is missing" for name in sorted(needed - set(body))]
    unknown = set(body) - needed - allowed - {"team_id"}  # which clients add for apps of a whole organisation
    found += [f"{method}: {name} is no argument" for name in sorted(unknown)]
    found += [f"{method}: {problem}" for problem in _texts(body)]
    if method == "agents.sessions.setStatus" and body.get("status") not in _STATUSES:
        found.append(f"{method}: status is one of {sorted(_STATUSES)}")
    if method == "assistant.threads.setStatus" and len(body.get("status", "")) > 50:
        found.append(f"{method}: the status is longer than 50")
    return found


def _texts(body: Json) -> Iterator[str]:
    if len(body.get("text") or "") > 40_000:
        yield "text is longer than 40,000"
    if len(body.get("markdown_text") or "") > 12_000:
        yield "markdown_text is longer than 12,000"
    yield from blocks_problems(body.get("blocks") or body.get("view", {}).get("blocks") or [])


def blocks_problems(blocks: list[Json]) -> Iterator[str]:
    if len(blocks) > 100:
        yield "there are more than 100 blocks"
    if sum(len(block.get("text", "")) for block in blocks if block.get("type") == "markdown") > 12_000:
        yield "the markdown blocks are longer than 12,000"
    for block in blocks:
        yield from _block(block)


def _block(block: Json) -> Iterator[str]:
    match block.get("type"):
        case "markdown":
            if not str(block.get("text", "")).strip():
                yield "a markdown block is empty"
        case "section":
            if not 1 <= len(block.get("text", {}).get("text", "")) <= 3000:
                yield "the text of a section has 1 to 3,000 characters"
        case "actions":
            elements = block.get("elements", [])
            ids = [element.get("action_id") for element in elements]
            if not 1 <= len(elements) <= 25 or len(set(ids)) != len(ids):
                yield "an actions block has 1 to 25 elements, each with an action_id of its own"
            for element in elements:
                yield from _button(element)
        case "header" | "context":
            return
        case kind:
            yield f"there is no block {kind}"


def _button(element: Json) -> Iterator[str]:
    if element.get("type") != "button" or not 1 <= len(element.get("text", {}).get("text", "")) <= 75:
        yield "a button has a text of 1 to 75 characters"
    if len(element.get("value", "")) > 2000 or len(element.get("action_id", "")) > 255:
        yield "a button's value has at most 2,000 characters, its action_id 255"
