"""What the chat prints: answers in blocks as they become whole; what is not whole yet is previewed and replaced."""

from collections.abc import Callable

from rich.console import Console
from rich.segment import Segment, SegmentLines
from rich.text import Text

from gateway.cli.conversation import RunOutcome, failure_text
from gateway.cli.formatting import clean
from gateway.cli.markdown import TerminalMarkdown
from gateway.cli.markdown_stream import Blocks
from gateway.runs.live import LiveEvent
from sessions.records import RunStatus, StopReason

LONGEST_PREVIEW = 8_000
"""Characters of a block up to which it is set anew for every preview."""
_BELOW_PREVIEW = 8
"""Rows of a window that a preview leaves free for the prompt and its menu."""


class Screen:
    """Prints above the prompt. `streamed` is what the last step has already shown of its answer. `changed` is called when
    `preview` may be another one."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.changed: Callable[[], None] = lambda: None
        self._blocks = Blocks()
        self._streamed = ""
        self._step_over = False
        self._dropped = ""
        self._lines_shown = 0
        self._checked_length = 0
        self._options = self.console.options

    def on_event(self, event: LiveEvent) -> None:
        if event.run_id == self._dropped:
            return
        match event.kind:
            case "token":
                self._begin_step()
                self._streamed += event.text
                for block in self._blocks.feed(clean(event.text)):
                    self.markdown(block)
                self._print_settled_lines()
                self.changed()
            case "afresh":
                self._begin_step()
                self._discard_block()
                if self._streamed:
                    self.dim("(the answer starts again)")
                self._streamed = ""
            case "tool":
                self.flush()
                self.dim(f"· {event.text}")
            case "said":
                self.flush()
                self._step_over = True
            case "begun" | "answered" | "turned" | "tool_done" | "heading" | "ended":
                pass

    def _begin_step(self) -> None:
        if self._step_over:
            self._streamed, self._step_over = "", False

    def flush(self) -> None:
        if rest := self._blocks.rest():
            self.markdown(rest)
        self.changed()

    def drop(self, run_id: str) -> None:
        """Shows nothing more of this run: it was ended, and its words may still be under way."""
        self._dropped = run_id
        self._discard_block()
        self._step_over = True

    def show_outcome(self, outcome: RunOutcome) -> None:
        """Shows how the run stands, without repeating what was streamed."""
        if outcome.run.stop_reason is StopReason.CANCELLED:
            self._discard_block()  # whoever stopped it here has seen what there was
        elif outcome.answer and not self._streamed.strip().endswith(outcome.answer.strip()):
            self._discard_block()
            self.markdown(outcome.answer)
        self.flush()
        self._step_over = True
        if outcome.ask is not None:
            self.markdown(outcome.ask.question)
            for number, option in enumerate(outcome.ask.options, 1):
                self.dim(f"  {number}. {option}")
            if outcome.ask.options:
                self.console.print()
        if outcome.run.status is RunStatus.ERROR:
            self.dim(failure_text(outcome.run))

    def preview(self) -> SegmentLines:
        """Returns the last lines of the block that is still being written, as many as fit above the prompt."""
        text = self._blocks.unfinished
        if len(text) > LONGEST_PREVIEW:
            text, shown = text.rpartition("\n")[2][-self.console.width :], 0
        else:
            shown = self._lines_shown
        lines = self._lines(text)[shown:] if text.strip() else []
        return SegmentLines(lines[-max(1, self.console.height - _BELOW_PREVIEW) :], new_lines=True)

    def _discard_block(self) -> None:
        self._blocks.clear()
        self._lines_shown = self._checked_length = 0
        self.changed()

    def _print_settled_lines(self) -> None:
        """Prints those lines of a long block that nothing can change."""
        text = self._blocks.unfinished
        # Rendering costs more the longer a block is: looked at again only when an eighth was added, the sum stays linear.
        if len(text) < self._checked_length + max(self._options.max_width, self._checked_length // 8):
            return
        self._checked_length = len(text)
        if not self._blocks.is_append_only:
            return
        lines = self._lines(text)[:-1]
        self._print(lines[self._lines_shown :])
        self._lines_shown = max(self._lines_shown, len(lines))

    def _lines(self, text: str) -> list[list[Segment]]:
        """Set for one width from its first line to its last, whatever becomes of the window meanwhile."""
        if not self._lines_shown:
            self._options = self.console.options
        rendered = self.console.render(TerminalMarkdown(text), self._options)
        lines = [_without_padding(line) for line in Segment.split_lines(rendered)]
        while lines and not lines[0]:  # a quote or a list begins with a blank one
            lines.pop(0)
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def markdown(self, text: str) -> None:
        lines = self._lines(clean(text))[self._lines_shown :]
        self._lines_shown = self._checked_length = 0
        self._print(lines)
        self.console.print()

    def _print(self, lines: list[list[Segment]]) -> None:
        self.console.print(SegmentLines(lines, new_lines=True), end="", crop=False)

    def dim(self, text: str) -> None:
        self.console.print(Text(clean(text), style="dim"))

    def plain(self, text: str) -> None:
        self.console.print(Text(clean(text)))


def _without_padding(line: list[Segment]) -> list[Segment]:
    """Removes the spaces up to the edge, which would be copied too."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    if not line:
        return line
    last = line[-1]
    return [*line[:-1], Segment(last.text.rstrip(), last.style, last.control)]
