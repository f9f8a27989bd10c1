"""Looks tool calls up in the journal: the arguments of a call, and how often a run has made the same one."""

from collections.abc import Sequence

from gateway.agent.tools.registry import same_arguments
from sessions.records import Message, Role


def arguments_of(call: Message, history: Sequence[Message]) -> str:
    """Returns the arguments of this call as the model wrote them. They stand in the answer that made it, not in the row of the call."""
    for message in reversed(history):
        for made in message.tool_calls or ():
            if made["id"] == call.tool_call_id and message.id < call.id:
                return str(made["function"]["arguments"])
    return "{}"


def times_made(history: Sequence[Message], run_id: str, call: Message, arguments: str) -> int:
    """Returns how often this run has made the very same call and had its result."""
    results = {each.tool_call_id for each in history if each.role is Role.TOOL and each.id < call.id}
    made = [each for message in history if message.run_id == run_id for each in message.tool_calls or ()]
    # Only those with a result: the call itself, and others of the same answer, are not done yet.
    same = (each["function"] for each in made if each["id"] in results)
    return sum(each["name"] == call.tool_name and same_arguments(each["arguments"], arguments) for each in same)
