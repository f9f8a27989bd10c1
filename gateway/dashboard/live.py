"""Keeps an open page up to date: one event stream for each tab that is looked at.

Every connection begins with all fragments as they are, so a tab that was hidden, or a browser that was away, needs no event of before.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from gateway.api.http.errors import ApiError
from gateway.api.http.sse import EventStream
from gateway.dashboard.pages import DashboardPage
from gateway.dashboard.rendering import render_blocks
from gateway.dashboard.server import Visit
from gateway.runs.live import LiveEvent, TextDeduplicator
from sessions import sign_ins
from sessions.topics import Touch

_PAUSE_SECONDS = 0.2
"""What is committed within this time is shown together."""
_LOOK_SECONDS = 15.0
"""A page is read again after this time anyway: times pass, and another process may have written."""
GROWN = 20_000
"""So many characters of a growing answer are shown, as they are: Markdown of all of it, several times a second, would cost ever more."""
GROWING = "growing"
"""The block with the text of an answer that is being given; a page that has it names its run as `following`."""


async def follow(visit: Visit, page: DashboardPage) -> web.StreamResponse:
    """Streams the page's fragments, each when it has changed, until the person leaves or is signed out."""
    server = visit.dashboard.server
    # Before each event: who was an admin when the page was opened may be none any more.
    stream = EventStream(visit.request, lambda: visit.dashboard.require_admin(visit.account))
    news, sent = asyncio.Event(), dict[str, str]()
    loop = asyncio.get_running_loop()
    growing, is_old = _GrowingAnswer(visit, news), True

    def read_again() -> None:
        nonlocal is_old
        is_old = True
        news.set()

    def committed(_: frozenset[Touch]) -> None:
        loop.call_soon_threadsafe(read_again)

    stop = visit.app.database.listen(committed)
    visit.dashboard.tabs.add(read_again)
    closing = asyncio.ensure_future(server.closing.wait())
    closing.add_done_callback(lambda _: news.set())  # an open page must not hold the daemon up that stops
    values: Mapping[str, Any] = {}
    try:
        while not server.closing.is_set():
            # Where only the text has grown, nothing is read, and nothing else is rendered.
            wanted = page.live if is_old else (GROWING,)
            if is_old:
                is_old = False
                if not await visit.app.database.read(sign_ins.signed_in, visit.secret, visit.app.clock()):
                    break
                values = await visit.app.database.read(page.values, visit)
                growing.follow(values.get("following"))
            shown = {**values, "growing": growing.text[-GROWN:]}
            fragments = await asyncio.to_thread(render_blocks, page.template, wanted, shown)
            for name, html in fragments.items():
                if sent.get(name) != html:
                    sent[name] = html
                    await stream.write(f"data: {json.dumps({'id': name, 'html': html})}\n\n".encode())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK_SECONDS, server.intervals.heartbeat)):
                    await news.wait()
            if not news.is_set():
                is_old = True
                await stream.keep_alive()
            await asyncio.sleep(_PAUSE_SECONDS)
            news.clear()
        await stream.end()
    except ConnectionError:
        pass  # the tab was closed, or is hidden
    except ApiError:
        if not stream.started:
            raise
        await stream.end()
    finally:
        stop()
        closing.cancel()
        visit.dashboard.tabs.discard(read_again)
        growing.follow(None)
    return stream.response


class _GrowingAnswer:
    """The text of the step that a run is at."""

    def __init__(self, visit: Visit, news: asyncio.Event) -> None:
        self._live = visit.app.live
        self._news = news
        self._run_id: str | None = None
        self._stop: Callable[[], None] = lambda: None
        self._once = TextDeduplicator()
        self.text = ""

    def follow(self, run_id: str | None) -> None:
        """Follows this run from now on; None: none."""
        if run_id == self._run_id:
            return
        self._stop()
        self._run_id, self.text, self._stop = run_id, "", lambda: None
        if run_id is not None:
            self._live.replay(run_id, self._on_event)
            self._stop = self._live.listen(run_id, self._on_event)

    def _on_event(self, event: LiveEvent) -> None:
        match event.kind:
            case "token":
                self.text += self._once.new_in(event.text)
            case "afresh":
                self._once.restart()
            case "said" | "ended":
                self._once.end_step()
                self.text = ""
            case _:
                return
        self._news.set()
