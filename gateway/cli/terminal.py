"""The chat on a terminal: a prompt that stays usable while the agent works, answers above it as they grow."""

import asyncio
import time
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

from gateway.cli.blocks import Blocks
from gateway.cli.conversation import Conversation, Outcome
from gateway.commands import COMMANDS
from gateway.runs.live import Moment
from gateway.texts import say
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
    """Prints above the prompt. `streamed` is what this run has already shown of its answer."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._blocks = Blocks()
        self._streamed = ""

    def hear(self, moment: Moment) -> None:
        match moment.kind:
            case "token":
                self._streamed += moment.text
                for block in self._blocks.feed(moment.text):
                    self._markdown(block)
            case "afresh":
                self._blocks.clear()
                if self._streamed:
                    self.dim("(the answer starts again)")
                self._streamed = ""
            case "tool":
                self.flush()
                self.dim(f"· {moment.text}")
            case "begun" | "tool_done" | "ended":
                pass

    def flush(self) -> None:
        if rest := self._blocks.rest():
            self._markdown(rest)
        self._streamed = ""

    def settle(self, outcome: Outcome) -> None:
        """Show how the run stands, without repeating what was streamed."""
        stopped = outcome.run.stop_reason is StopReason.CANCELLED
        if outcome.answer and not stopped and not self._streamed.strip().endswith(outcome.answer.strip()):
            self._blocks.clear()
            self._markdown(outcome.answer)
        self.flush()
        if outcome.ask is not None:
            self._markdown(outcome.ask.question)
            for number, option in enumerate(outcome.ask.options, 1):
                self.dim(f"  {number}. {option}")
            if outcome.ask.options:
                self._console.print()
        if outcome.run.status is RunStatus.ERROR:
            self.dim(f"{outcome.run.error or say('run.failed')} {say('run.kept')}")

    def _markdown(self, text: str) -> None:
        lines = self._console.render_lines(_Markdown(text), pad=False)
        while lines and _is_blank(lines[0]):  # a quote or a list begins with one
            lines.pop(0)
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
        self._prompt = PromptSession[str](
            history=FileHistory(str(home / "history")),
            completer=WordCompleter([f"/{command.name}" for command in COMMANDS], sentence=True),
            complete_while_typing=False,
            key_bindings=_keys(),
            enable_history_search=True,
        )
        (home / "history").touch(mode=0o600)

    async def run(self, unfinished: Run | None = None) -> None:
        unlisten = self._conversation.listen(self._screen.hear)
        watcher = asyncio.create_task(self._watch(unfinished))
        try:
            with patch_stdout(raw=True):
                while (text := await self._read()) not in {None, "exit", "quit"}:
                    await self._take(text or "")
        finally:
            watcher.cancel()
            unlisten()

    async def _read(self) -> str | None:
        """None when the user leaves. Ctrl-C stops an answer; twice leaves."""
        try:
            return await self._prompt.prompt_async(
                FormattedText([("bold", PROMPT)]), bottom_toolbar=self._status, refresh_interval=0.5
            )
        except EOFError:
            return None
        except KeyboardInterrupt:
            twice = time.monotonic() - self._interrupted_at < TWICE_SECONDS
            self._interrupted_at = time.monotonic()
            if twice:
                return None
            if await self._conversation.stop():
                self._screen.flush()
                self._screen.dim(say("run.stopped"))
            else:
                self._screen.dim("Ctrl-C once more leaves.")
            return ""

    async def _take(self, text: str) -> None:
        text = text.strip()
        if not text:
            return
        self._interrupted_at = 0.0
        answer = await self._conversation.command(text)
        if answer is None:
            if self._working_since is not None:
                self._screen.dim(say("run.noted"))
            await self._conversation.say(text)
        elif answer:
            self._screen.plain(answer)

    def _status(self) -> str:
        if self._working_since is None:
            return ""
        return f" working {time.monotonic() - self._working_since:.0f} s · type to add something · Ctrl-C stops"

    async def _watch(self, unfinished: Run | None) -> None:
        """Show each run's outcome once, whoever started it."""
        shown: tuple[str, RunStatus] | None = None
        current = unfinished.id if unfinished else None
        async with self._conversation.changes() as changes:
            while True:
                active = await self._conversation.active()
                if active is not None:
                    current = active.id
                if current is not None:
                    shown = await self._show(current, shown)
                await changes.next()

    async def _show(self, run_id: str, shown: tuple[str, RunStatus] | None) -> tuple[str, RunStatus]:
        outcome = await self._conversation.outcome(run_id)
        state = (run_id, outcome.run.status)
        if outcome.run.status is RunStatus.RUNNING:
            self._working_since = self._working_since or time.monotonic()
        elif state != shown:
            self._working_since = None
            self._screen.settle(outcome)
        return state


def _is_blank(line: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in line)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
