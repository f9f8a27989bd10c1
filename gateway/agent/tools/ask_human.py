"""Ask a person, and wait as long as it takes."""

from typing import Annotated

from pydantic import Field

from gateway.agent.tools.registry import Arguments, HumanQuestion, Tool, ToolContext


class AskHumanArguments(Arguments):
    question: Annotated[str, Field(min_length=1, max_length=2_000)]
    options: Annotated[
        list[str], Field(max_length=10, default_factory=list, description="possible answers, if there are few")
    ]


async def ask_human(place: ToolContext, arguments: AskHumanArguments) -> HumanQuestion:  # noqa: ARG001  # every tool has the same two parameters
    """Stop and wait, for days if need be, until the person decides something that you cannot go on without: a choice, a permission, a
    fact that only they know. Not for greetings, small talk, or to ask what they want: answer those, with a question in your answer.
    The result is what the person wrote next, which may be the answer or something new."""
    return HumanQuestion(question=arguments.question, options=tuple(option[:100] for option in arguments.options))


TOOL = Tool(name="ask_human", arguments=AskHumanArguments, function=ask_human, idempotent=True)
