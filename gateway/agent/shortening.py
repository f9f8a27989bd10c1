"""Replaces parts of messages that take too much room in a request by a note that names the message."""

import json
from dataclasses import replace

from gateway.agent.models.interface import JSON
from sessions.records import Message, Role


def cut_marker(message: Message) -> str:
    """Returns what stands at the end of a text that was cut: where the whole of it can be read."""
    return f"\n[cut; the whole is message {message.id}: session_search with message={message.id} reads it]"


def without_result(message: Message) -> Message:
    """Returns the message with a note instead of its result, or of the arguments of its calls; unchanged where the note would be longer."""
    where = f"[cleared, message {message.id}]"
    if message.role is Role.TOOL and len(message.content or "") > len(where):
        return replace(message, content=where)
    if message.tool_calls:
        return replace(message, tool_calls=[_without_arguments(call, where) for call in message.tool_calls])
    return message


def _without_arguments(call: JSON, where: str) -> JSON:
    arguments = json.dumps({"cleared": where})
    if len(call["function"]["arguments"]) <= len(arguments):
        return call
    return {**call, "function": {**call["function"], "arguments": arguments}}


def without_text(message: Message) -> Message:
    """Returns the message with a note instead of its text; unchanged where the note would be longer."""
    where = f"[cleared, message {message.id}]"
    return replace(message, content=where) if len(message.content or "") > len(where) else message
