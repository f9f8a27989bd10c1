"""Ask a person, and wait as long as it takes."""

from typing import Annotated

from pydantic import Field

from gateway.agent.tools.registry import Arguments, Asking, Place, Tool


class AskHuman(Arguments):
    question: Annotated[str, Field(min_length=1, max_length=2_000)]
    options: Annotated[
        list[str], Field(max_length=10, default_factory=list, description="possible answers, if there are few")
    ]


async def ask_human(place: Place, arguments: AskHuman) -> Asking:  # noqa: ARG001  # every tool has the same two parameters
    """Ask the person you talk to and wait for the answer, for days if need be. Use it for decisions and facts only they have."""
    return Asking(question=arguments.question, options=tuple(option[:100] for option in arguments.options))


TOOL = Tool(name="ask_human", arguments=AskHuman, function=ask_human, idempotent=True)
