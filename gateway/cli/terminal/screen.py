"""What the chat prints: Markdown in blocks as they become whole; what is not whole yet is previewed and replaced."""

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import CodeBlock, Heading, Markdown
from rich.segment import Segment, SegmentLines
from rich.syntax import Syntax
from rich.text import Text

from gateway.cli.terminal.conversation import RunOutcome, failure_text
from gateway.runs.live import LiveEvent
from gateway.runs.replies import question_text
from gateway.texts import clean
from sessions.records import RunStatus, StopReason

_FENCE = re.compile(r"( *)(`{3,}(?=[^`]*$)|~{3,})")
_CLOSED = re.compile(r"`[^`\n]+`|\*\*(?=\S)[^*\n]*[^*\s]\*\*")
_PLAIN = re.compile(r"[^\W\d][^\n*_`\[\]<>|~\\&!]*")


class Blocks:
    """Cuts Markdown into blocks. `feed` takes what arrives and returns whole blocks: one ends at a blank line outside of a code fence,
    and where such a fence begins or ends.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""  # the last one, which has no line break yet
        self._fence = ""  # what the open fence begins with

    def feed(self, text: str) -> list[str]:
        *lines, self._line = f"{self._line}{text}".split("\n")
        return [block for line in lines for block in self._take(line)]

    def _take(self, line: str) -> list[str]:
        if self._fence:
            self._lines.append(line)
            mark = line.strip()
            if len(mark) < len(self._fence) or mark.strip(self._fence[0]):
                return []
            self._fence = ""
            return self._cut() if _FENCE.match(self._lines[0]) else []
        opened = _FENCE.match(line)
        if opened is None and not line.strip():
            return self._cut()
        before = self._cut() if opened is not None and not opened[1] else []  # an indented one may belong to a list
        self._fence = opened[2] if opened is not None else ""
        self._lines.append(line)
        return before

    def _cut(self) -> list[str]:
        block, self._lines = self._without_indent(self._lines), []
        return [block] if block.strip() else []

    @staticmethod
    def _without_indent(lines: list[str]) -> str:
        """Removes the indent of code that belongs to a list above it, so that it can be copied."""
        opened = _FENCE.match(lines[0]) if lines else None
        indent = opened[1] if opened is not None else ""
        return "\n".join(line.removeprefix(indent) for line in lines)

    @property
    def unfinished(self) -> str:
        """Returns the next block, as far as it has come."""
        return self._without_indent([*self._lines, self._line])

    @property
    def is_append_only(self) -> bool:
        """Returns whether nothing that follows can change the lines of `unfinished`, the last one excepted."""
        if self._fence:
            return _FENCE.match(self._lines[0]) is not None
        return _PLAIN.fullmatch(_CLOSED.sub("x", self.unfinished)) is not None

    def rest(self) -> str:
        rest = self.unfinished.strip("\n")
        self.clear()
        return rest

    def clear(self) -> None:
        self._lines, self._line, self._fence = [], "", ""


class TerminalMarkdown(Markdown):
    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)  # a link is written as: words (address)
        for token in self.parsed:
            if token.children is not None:
                token.children = list(_plain_links(token.children))
                # A chat shows line breaks as they were sent; Markdown would join the lines.
                for child in token.children:
                    if child.type == "softbreak":
                        child.type = "hardbreak"


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Without margin, and without a line break that the code does not have: a long line is wrapped by the terminal itself."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # In colours of the terminal's own, which can be read on its background.
        syntax = Syntax("", self.lexer_name, theme="ansi_dark", background_color="default")
        code = syntax.highlight(str(self.text).rstrip())
        code.rstrip()
        code.no_wrap, code.end = False, ""
        if options.max_width < console.width:  # inside of a list or quote, which have margins of their own
            code.overflow = "fold"
            yield code
        else:
            yield from code.render(console)
            yield Segment.line()


TerminalMarkdown.elements = {**Markdown.elements, "heading_open": _LeftHeading, "fence": _Code, "code_block": _Code}


def _plain_links(tokens: Iterable[Token]) -> Iterator[Token]:
    """Replaces a link whose words are its address by that address."""
    queue = deque(tokens)
    while queue:
        token = queue.popleft()
        if token.type == "link_open" and len(queue) > 1 and queue[1].type == "link_close":
            address = str(token.attrs.get("href", "")).removeprefix("mailto:")
            short = address.removeprefix("https://").removeprefix("http://").rstrip("/")
            if queue[0].content.rstrip("/") in {address.rstrip("/"), short}:
                yield Token("text", "", 0, content=address)
                queue.popleft()
                queue.popleft()
                continue
        yield token


# --- the screen ---

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
            case "begun" | "answered" | "turned" | "tool_done" | "heading" | "ended" | "gap":
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
            self.markdown(question_text(outcome.ask, whole=True))
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


REDRAW_SECONDS = 0.05


@contextlib.contextmanager
def previewing(screen: Screen) -> Generator[None]:
    loop = asyncio.get_running_loop()
    due: asyncio.TimerHandle | None = None

    def draw() -> None:
        nonlocal due
        due = None
        live.refresh()

    def changed() -> None:
        nonlocal due
        due = due or loop.call_later(REDRAW_SECONDS, draw)

    with Live(
        console=screen.console,
        get_renderable=screen.preview,
        auto_refresh=False,
        # The block is printed for good by the screen; what the preview drew must be gone by then.
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as live:
        screen.changed = changed
        try:
            yield
        finally:
            screen.changed = lambda: None
            if due is not None:
                due.cancel()
