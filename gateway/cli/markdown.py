"""Markdown as a terminal shows it, so that what is seen can be copied: line breaks stay, addresses are text, code has no margin."""

from collections import deque
from collections.abc import Iterable, Iterator

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text


class TerminalMarkdown(Markdown):
    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)  # a link is written as: words (address)
        for token in self.parsed:
            if token.children is not None:
                token.children = list(_plain_links(_kept_breaks(token.children)))


class _LeftHeading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Without margin, and without a line break that the code does not have: a long line is wrapped by the terminal itself."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = _highlighted(str(self.text).rstrip(), self.lexer_name)
        if options.max_width < console.width:  # inside of a list or quote, which have margins of their own
            code.overflow = "fold"
            yield code
        else:
            yield from code.render(console)
            yield Segment.line()


TerminalMarkdown.elements = {**Markdown.elements, "heading_open": _LeftHeading, "fence": _Code, "code_block": _Code}


def _highlighted(code: str, language: str) -> Text:
    """In colours of the terminal's own, which can be read on its background."""
    text = Syntax(code, language, theme="ansi_dark", background_color="default").highlight(code)
    text.rstrip()
    text.no_wrap, text.end = False, ""
    return text


def _kept_breaks(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        # A chat shows line breaks as they were sent; Markdown would join the lines.
        if token.type == "softbreak":
            token.type = "hardbreak"
        yield token


def _plain_links(tokens: Iterable[Token]) -> Iterator[Token]:
    """Replaces a link whose words are its address by that address."""
    queue = deque(tokens)
    while queue:
        token = queue.popleft()
        if token.type == "link_open" and len(queue) > 1 and queue[1].type == "link_close":
            address = str(token.attrs.get("href", "")).removeprefix("mailto:")
            if queue[0].content.rstrip("/") in {address.rstrip("/"), _without_scheme(address)}:
                yield Token("text", "", 0, content=address)
                queue.popleft()
                queue.popleft()
                continue
        yield token


def _without_scheme(address: str) -> str:
    return address.removeprefix("https://").removeprefix("http://").rstrip("/")
