"""The preview of an answer on a terminal without a prompt: below what is printed, replaced until nothing is left of it."""

import asyncio
import contextlib
from collections.abc import Generator

from rich.live import Live

from gateway.cli.screen import Screen

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
