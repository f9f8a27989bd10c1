"""Completes commands and session ids at the prompt."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from gateway.commands import COMMANDS

Earlier = Callable[[], Awaitable[Sequence[tuple[str, str]]]]
"""Ids of earlier sessions, each with how it is called."""

_RESUME = "/resume "


class CommandCompleter(Completer):
    def __init__(self, earlier: Earlier) -> None:
        self._earlier = earlier

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """The commands that begin with what is typed. prompt_toolkit's own signature."""
        typed = document.text_before_cursor
        if not typed.startswith("/"):
            return
        for command in COMMANDS:
            if f"/{command.name}".startswith(typed):
                yield Completion(f"/{command.name}", start_position=-len(typed), display_meta=command.about)

    # prompt_toolkit calls this one; the database must not be read on the event loop, so ids are awaited.
    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion]:
        typed = document.text_before_cursor
        if not typed.startswith(_RESUME):
            for completion in self.get_completions(document, complete_event):
                yield completion
            return
        begun = typed.removeprefix(_RESUME).casefold()
        for session_id, title in await self._earlier():
            if session_id.startswith(begun) or title.casefold().startswith(begun):
                yield Completion(session_id, start_position=-len(begun), display_meta=title)
