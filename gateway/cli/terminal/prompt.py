"""The chat on a terminal: a prompt that stays usable while the agent works and completes commands; answers grow above it."""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, FormattedText, merge_formatted_text
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import StdoutProxy

from gateway.cli.output import sentence
from gateway.cli.terminal.conversation import TerminalConversation
from gateway.cli.terminal.screen import Screen
from gateway.commands import COMMANDS
from gateway.texts import say
from sessions.clock import now_ms
from sessions.errors import NotFound
from sessions.records import Run, RunStatus

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


TWICE_SECONDS = 2.0
REDRAW_SECONDS = 0.05
PROMPT = "you › "


class Terminal:
    """The prompt and the answers above it. `run` returns when the user leaves."""

    def __init__(self, conversation: TerminalConversation, home: Path, screen: Screen) -> None:
        self._conversation = conversation
        self._screen = screen
        self._working_since: float | None = None
        self._interrupted_at = 0.0
        self._typed = ""
        self._current: str | None = None
        self._began = 0
        self._shown: tuple[str, RunStatus] | None = None
        self._last_error = ""
        self._jobs_shown_to = now_ms()
        self._noted: str | None = None  # the run of which was said that it takes into account what is typed meanwhile
        self._prompt = PromptSession[str](
            history=_History(str(home / "history")),
            completer=CommandCompleter(conversation.earlier),
            complete_while_typing=False,
            key_bindings=self._keys(),
            enable_history_search=True,
            enable_suspend=True,
        )
        # Each token asks for a new picture; a slow ssh connection would be busy with nothing else.
        self._prompt.app.min_redraw_interval = REDRAW_SECONDS
        self._stopping: asyncio.Task[None] | None = None
        # prompt_toolkit would create it readable for everybody.
        (home / "history").touch(mode=0o600)

    async def run(self, unfinished: Run | None = None) -> None:
        self._current = unfinished.id if unfinished else None
        self._began = now_ms()
        unlisten = self._conversation.listen(self._screen.on_event)
        self._screen.changed = self._prompt.app.invalidate
        watcher = asyncio.create_task(self._watch())
        try:
            with _printing_above_the_prompt():
                while (text := await self._read()) not in _LEAVING:
                    with self._showing_errors(text or ""):
                        await self._take(text or "")
        finally:
            watcher.cancel()
            unlisten()
            self._screen.flush()

    async def _read(self) -> str | None:
        """Returns a line; None when the user leaves. Ctrl-C stops an answer, and what was typed stays; twice leaves."""
        typed, self._typed = self._typed, ""
        try:
            return await self._prompt.prompt_async(
                self._message, default=typed, bottom_toolbar=self._status, refresh_interval=0.5
            )
        except EOFError:
            return None
        except KeyboardInterrupt:
            twice = self._is_twice()
            self._interrupted_at = time.monotonic()
            if twice:
                return None
            await self._stop()
            return ""

    def _message(self) -> AnyFormattedText:
        """Returns the answer as far as it is not printed yet, and the prompt below it."""
        prompt = FormattedText([("bold", PROMPT)])
        if self._prompt.app.is_done:  # what is drawn now stays on the screen for good
            return prompt
        # As a part of the prompt, which is redrawn: what was printed above it could not be replaced.
        with self._screen.console.capture() as preview:
            self._screen.console.print(self._screen.preview(), end="", crop=False)
        return merge_formatted_text([ANSI(preview.get()), prompt])

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=Condition(self._is_to_stop))
        @keys.add("<sigint>", filter=Condition(self._is_to_stop))
        def _(_: KeyPressEvent) -> None:
            self._interrupted_at = time.monotonic()
            self._stopping = asyncio.ensure_future(self._stop())

        return keys

    def _is_to_stop(self) -> bool:
        """Returns whether Ctrl-C means the answer, so that the prompt and what is typed there stay."""
        return self._working_since is not None and not self._is_twice()

    def _is_twice(self) -> bool:
        return time.monotonic() - self._interrupted_at < TWICE_SECONDS

    async def _stop(self) -> None:
        self._screen.flush()
        with self._showing_errors():
            stopped = await self._conversation.stop()
            self._screen.dim(say("run.stopped") if stopped else "Ctrl-C once more leaves.")

    @contextlib.contextmanager
    def _showing_errors(self, typed: str = "") -> Generator[None]:
        """Shows an error and puts what was typed back to the prompt: a full disk, or a mistake of ours, costs the chat nothing."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # the edge where the conversation, or the daemon, would end
            self._typed = typed
            self._screen.dim(sentence(error))

    async def _take(self, text: str) -> None:
        text = text.strip()
        if not text:
            return
        self._interrupted_at = 0.0
        reply = await self._conversation.command(text)
        if reply is None:
            working = self._working_since is not None
            await self._conversation.say(text)
            if (line := await self._conversation.reset_notice()) is not None:
                self._screen.dim(line)
            if working and self._noted != self._current:
                self._screen.dim(say("run.noted"))
                self._noted = self._current
            return
        if reply.ended is not None:
            self._screen.drop(reply.ended)
        if reply.text:
            self._screen.plain(reply.text)

    def _status(self) -> str:
        if self._working_since is None:
            return ""
        return f" working {time.monotonic() - self._working_since:.0f} s · type to add something · Ctrl-C stops"

    async def _watch(self) -> None:
        async with self._conversation.changes() as changes:
            while True:
                # Watches the runs, whatever fails; the same trouble is shown once.
                try:
                    await self._show()
                    await self._show_jobs()
                    self._last_error = ""
                except NotFound:  # its session was deleted meanwhile
                    self._current = self._working_since = None
                except Exception as error:  # noqa: BLE001  # the next look may go well
                    error_text = sentence(error)
                    if error_text != self._last_error:
                        self._screen.dim(error_text)
                    self._last_error = error_text
                await changes.next()

    async def _show(self) -> None:
        """Shows each run's outcome once, whoever started it."""
        newest = await self._conversation.newest_run(self._began)
        if newest is not None:
            self._current = newest.id
        if self._current is None:
            return
        outcome = await self._conversation.outcome(self._current)
        state = (self._current, outcome.run.status)
        if outcome.run.status is RunStatus.RUNNING:
            self._working_since = self._working_since or time.monotonic()
        elif state != self._shown:
            self._working_since = None
            self._screen.show_outcome(outcome)
        self._shown = state

    async def _show_jobs(self) -> None:
        for name, said, ended in await self._conversation.job_results(self._jobs_shown_to):
            self._screen.flush()
            self._screen.dim(say("job.result", name=name))
            self._screen.markdown(said)
            self._jobs_shown_to = ended


_LEAVING = frozenset({None, "exit", "quit", "/exit", "/quit"})


class _History(FileHistory):
    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: the line is remembered until the chat ends
            super().store_string(string)


@contextlib.contextmanager
def _printing_above_the_prompt() -> Generator[None]:
    """Prints above the prompt as prompt_toolkit's patch_stdout does, but without its pause of 0.2 s. Log lines go there too."""
    handlers: list[Any] = list(logging.getLogger().handlers)
    shown = [each for each in handlers if getattr(each, "stream", None) is sys.stderr]
    with (
        StdoutProxy(sleep_between_writes=0.0, raw=True) as proxy,
        contextlib.redirect_stdout(proxy),
        contextlib.redirect_stderr(proxy),
    ):
        before = [each.setStream(proxy) for each in shown]
        try:
            yield
        finally:
            for handler, stream in zip(shown, before, strict=True):
                handler.setStream(stream)
