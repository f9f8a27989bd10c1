"""The chat on a terminal: a prompt that stays usable while the agent works, answers above it as they grow."""

import asyncio
import contextlib
import time
from collections.abc import Generator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.segment import Segment, SegmentLines
from rich.text import Text

from gateway.cli.conversation import Conversation, RunOutcome, why_it_failed
from gateway.cli.error_messages import sentence
from gateway.cli.markdown_stream import Blocks
from gateway.commands import COMMANDS
from gateway.runs.live_events import LiveEvent
from gateway.texts import say
from sessions.errors import NotFound
from sessions.records import Run, RunStatus, StopReason

TWICE_SECONDS = 2.0
PROMPT = "you › "


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _LeftHeading}  # noqa: RUF012  # as rich declares it


class Screen:
    """Prints above the prompt. `streamed` is what the last step has already shown of its answer."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._blocks = Blocks()
        self._streamed = ""
        self._step_over = False
        self._dropped = ""
        self._lines_shown = 0
        self._looked_at = 0
        self._options = self._console.options

    def hear(self, moment: LiveEvent) -> None:
        if moment.run_id == self._dropped:
            return
        match moment.kind:
            case "token":
                self._begin_step()
                self._streamed += moment.text
                for block in self._blocks.feed(moment.text):
                    self._markdown(block)
                self._grow()
            case "afresh":
                self._begin_step()
                self._forget()
                if self._streamed:
                    self.dim("(the answer starts again)")
                self._streamed = ""
            case "tool":
                self.flush()
                self.dim(f"· {moment.text}")
            case "said":
                self.flush()
                self._step_over = True
            case "begun" | "answered" | "turned" | "tool_done" | "ended":
                pass

    def _begin_step(self) -> None:
        if self._step_over:
            self._streamed, self._step_over = "", False

    def flush(self) -> None:
        if rest := self._blocks.rest():
            self._markdown(rest)

    def drop(self, run_id: str) -> None:
        """Show nothing more of this run; it was ended, and its words may still be under way."""
        self._dropped = run_id
        self._forget()
        self._step_over = True

    def settle(self, outcome: RunOutcome) -> None:
        """Show how the run stands, without repeating what was streamed."""
        if outcome.run.stop_reason is StopReason.CANCELLED:
            self._forget()  # whoever stopped it here has seen what there was
        elif outcome.answer and not self._streamed.strip().endswith(outcome.answer.strip()):
            self._forget()
            self._markdown(outcome.answer)
        self.flush()
        self._step_over = True
        if outcome.ask is not None:
            self._markdown(outcome.ask.question)
            for number, option in enumerate(outcome.ask.options, 1):
                self.dim(f"  {number}. {option}")
            if outcome.ask.options:
                self._console.print()
        if outcome.run.status is RunStatus.ERROR:
            self.dim(why_it_failed(outcome.run))

    def _forget(self) -> None:
        self._blocks.clear()
        self._lines_shown = self._looked_at = 0

    def _grow(self) -> None:
        """Of a long paragraph the lines that are full; looked at only when there may be another one."""
        text = self._blocks.paragraph
        if len(text) < self._looked_at + self._options.max_width:
            return
        self._looked_at = len(text)
        lines = self._lines(text)[:-1]
        self._console.print(SegmentLines(lines[self._lines_shown :], new_lines=True), end="")
        self._lines_shown = len(lines)

    def _lines(self, text: str) -> list[list[Segment]]:
        """Set for one width from its first line to its last, whatever becomes of the window meanwhile."""
        if not self._lines_shown:
            self._options = self._console.options
        lines = self._console.render_lines(_Markdown(text), self._options, pad=False)
        while lines and _is_blank(lines[0]):  # a quote or a list begins with one
            lines.pop(0)
        return lines

    def _markdown(self, text: str) -> None:
        lines = self._lines(text)[self._lines_shown :]
        self._lines_shown = self._looked_at = 0
        self._console.print(SegmentLines(lines, new_lines=True))
        self._console.print()

    def dim(self, text: str) -> None:
        self._console.print(Text(text, style="dim"))

    def plain(self, text: str) -> None:
        self._console.print(Text(text))


class Terminal:
    """`run` until the user leaves. `started` is called once the prompt is up."""

    def __init__(self, conversation: Conversation, home: Path, screen: Screen) -> None:
        self._conversation = conversation
        self._screen = screen
        self._working_since: float | None = None
        self._interrupted_at = 0.0
        self._typed = ""
        self._current: str | None = None
        self._shown: tuple[str, RunStatus] | None = None
        self._complaint = ""
        self._prompt = PromptSession[str](
            history=_History(str(home / "history")),
            completer=WordCompleter([f"/{command.name}" for command in COMMANDS], sentence=True),
            complete_while_typing=False,
            key_bindings=_keys(),
            enable_history_search=True,
        )
        (home / "history").touch(mode=0o600)

    async def run(self, unfinished: Run | None = None) -> None:
        self._current = unfinished.id if unfinished else None
        unlisten = self._conversation.listen(self._screen.hear)
        watcher = asyncio.create_task(self._watch())
        try:
            with patch_stdout(raw=True):
                while (text := await self._read()) not in _LEAVING:
                    with self._told(text or ""):
                        await self._take(text or "")
        finally:
            watcher.cancel()
            unlisten()

    async def _read(self) -> str | None:
        """None when the user leaves. Ctrl-C stops an answer; twice leaves."""
        typed, self._typed = self._typed, ""
        try:
            return await self._prompt.prompt_async(
                FormattedText([("bold", PROMPT)]), default=typed, bottom_toolbar=self._status, refresh_interval=0.5
            )
        except EOFError:
            return None
        except KeyboardInterrupt:
            twice = time.monotonic() - self._interrupted_at < TWICE_SECONDS
            self._interrupted_at = time.monotonic()
            if twice:
                return None
            with self._told():
                await self._stop()
            return ""

    async def _stop(self) -> None:
        self._screen.flush()
        if await self._conversation.stop():
            self._screen.dim(say("run.stopped"))
        else:
            self._screen.dim("Ctrl-C once more leaves.")

    @contextlib.contextmanager
    def _told(self, typed: str = "") -> Generator[None]:
        """A full disk, or a mistake of ours, costs the chat nothing: what was typed stands at the prompt again."""
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
            if working:
                self._screen.dim(say("run.noted"))
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
                await self._look()
                await changes.next()

    async def _look(self) -> None:
        """Nobody would notice the end of the watching, so nothing ends it; the same trouble is told once."""
        try:
            await self._show()
            self._complaint = ""
        except NotFound:  # its session was deleted meanwhile
            self._current = self._working_since = None
        except Exception as error:  # noqa: BLE001  # the next look may go well
            complaint = sentence(error)
            if complaint != self._complaint:
                self._screen.dim(complaint)
            self._complaint = complaint

    async def _show(self) -> None:
        """Show each run's outcome once, whoever started it."""
        active = await self._conversation.active()
        if active is not None:
            self._current = active.id
        if self._current is None:
            return
        outcome = await self._conversation.outcome(self._current)
        state = (self._current, outcome.run.status)
        if outcome.run.status is RunStatus.RUNNING:
            self._working_since = self._working_since or time.monotonic()
        elif state != self._shown:
            self._working_since = None
            self._screen.settle(outcome)
        self._shown = state


_LEAVING = frozenset({None, "exit", "quit", "/exit", "/quit"})


class _History(FileHistory):
    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: the line is remembered until the chat ends
            super().store_string(string)


def _is_blank(line: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in line)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
