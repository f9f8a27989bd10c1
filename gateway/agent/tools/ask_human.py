"""Ask a person, and wait as long as it takes."""

from typing import Annotated

from pydantic import Field

from gateway.agent.tools.registry import Arguments, HumanQuestion, Tool, ToolContext


class AskHumanArguments(Arguments):
    question: Annotated[str, Field(min_length=1, max_length=2_000)]
    options: Annotated[list[str], Field(max_length=10, default_factory=list, description="if there are few")]


async def ask_human(place: ToolContext, arguments: AskHumanArguments) -> HumanQuestion:  # noqa: ARG001  # every tool has the same two parameters
    """Stop and wait until the person has answered. The result is what they wrote next: the answer, or something new."""
    return HumanQuestion(question=arguments.question, options=tuple(option[:100] for option in arguments.options))


TOOL = Tool(
    name="ask_human",
    arguments=AskHumanArguments,
    function=ask_human,
    idempotent=True,
    harmless=frozenset({""}),
    folder="",
)
