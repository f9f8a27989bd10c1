"""Live events of runs. They may be lost: everything that counts is in the journal."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sessions import codec
from sessions.records import CallOptions, Run

if TYPE_CHECKING:
    from sessions.db.bus import Bus, Live

Kind = Literal["begun", "token", "afresh", "said", "answered", "turned", "tool", "tool_done", "heading", "ended", "gap"]

NO_REPLY = "NO_REPLY"
"""An answer that is exactly this is not sent to a group."""


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something that happened to a run just now. Its kinds:

    `begun`: work on the run begins or goes on; `run` is set. `token`: the text of the answer grew by `text`. `afresh`: the endpoint, or a
    process that takes the run over, starts the answer again, so the text of this step is void. `said`: the text of this step is complete. `answered`: it is sent as an answer, and
    the run goes on with messages that came in meanwhile. `turned`: what comes next answers another message; `run` is set. `tool`: this
    tool begins. `tool_done`: it has ended. `heading`: the line above the answer. `ended`: nobody works on the run any more: it is over, or
    it waits. `gap`: events of this run may have been lost, on their way from another process.
    """

    run_id: str
    kind: Kind
    text: str = ""
    run: Run | None = None


Listener = Callable[[LiveEvent], None]
_PART = 1_000
"""Characters of a text that go to other processes in one piece: a message over the bus has a limit in bytes."""


class _TextSoFar:
    """Collects what was said since work on a run began: whole steps, and the one that grows."""

    __slots__ = ("before", "current", "has_gap", "steps")

    def __init__(self, before: int) -> None:
        self.before = before
        self.steps: list[str] = []
        self.current: list[str] = []
        self.has_gap = False

    def note(self, event: LiveEvent) -> None:
        match event.kind:
            case "gap":
                self.has_gap = True
            case "token" if not self.has_gap:
                self.current.append(event.text)
            case "afresh":
                self.current.clear()
            case "said":
                self.steps.append("".join(self.current))
                self.current.clear()
            case _:
                pass


class LiveEvents:
    """Passes events to the listeners of a run. Listeners must return at once."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = defaultdict(list)
        self._texts: dict[str, _TextSoFar] = {}
        self._here: set[str] = set()  # runs that this process works on
        self._bus: Bus | None = None

    def listen(self, run_id: str, listener: Listener) -> Callable[[], None]:
        """Calls the listener with the events of this run; `*`: of every run. Returns a function that stops it."""
        self._listeners[run_id].append(listener)

        def stop() -> None:
            self._listeners[run_id].remove(listener)
            if not self._listeners[run_id]:
                del self._listeners[run_id]

        return stop

    def is_here(self, run_id: str) -> bool:
        """Whether this process works on the run, so that its own commits tell of it."""
        return run_id in self._here

    def steps_before(self, run_id: str) -> int | None:
        """Returns how many steps the run had when work on it began here; None when nobody works on it here."""
        so_far = self._texts.get(run_id)
        return None if so_far is None else so_far.before

    def replay(self, run_id: str, listener: Listener) -> None:
        """Calls the listener, now, with the events since work on the run began; not at all for a run that nobody works on here."""
        so_far = self._texts.get(run_id)
        if so_far is None:
            return
        for step in so_far.steps:
            listener(LiveEvent(run_id, "token", step))
            listener(LiveEvent(run_id, "said"))
        if so_far.current:
            listener(LiveEvent(run_id, "token", "".join(so_far.current)))
        if so_far.has_gap:
            listener(LiveEvent(run_id, "gap"))

    def connect(self, bus: "Bus | None") -> None:
        """Passes events to other processes, and theirs to the listeners here, from now on. Called on the event loop."""
        self._bus, loop = bus, asyncio.get_running_loop()
        if bus is not None:
            bus.on_live = lambda told: self._hear(told, loop)
            bus.on_gap = lambda: self._call(loop, self._note_gap)

    def _hear(self, told: "list[Live]", loop: asyncio.AbstractEventLoop) -> None:
        events: list[LiveEvent] = []
        for each in told:
            with suppress(ValueError, TypeError):  # of a later version
                run_id, kind, text, *runs = each
                events.append(LiveEvent(run_id, kind, text, codec.shaped(Run, runs[0]) if runs else None))
                if kind == "begun":
                    self._here.discard(run_id)

        def pass_on() -> None:
            for event in events:
                self._pass_on(event)

        self._call(loop, pass_on)

    def _call(self, loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(function)

    def _note_gap(self) -> None:
        for run_id in {*self._listeners, *self._texts} - self._here - {"*"}:
            self._pass_on(LiveEvent(run_id, "gap"))

    def publish(self, event: LiveEvent) -> None:
        """Passes the event to its listeners, and to other processes."""
        if event.kind == "begun":
            self._here.add(event.run_id)
        elif event.kind == "ended":
            self._here.discard(event.run_id)
        self._pass_on(event)
        if self._bus is not None and not self._bus.is_alone:
            # Without the options: nobody who shows a run needs them, and they may be long.
            run = [codec.plain(Run, replace(event.run, options=CallOptions()))] if event.run is not None else []
            for at in range(0, max(1, len(event.text)), _PART):
                self._bus.tell([event.run_id, event.kind, event.text[at : at + _PART], *run])

    def _pass_on(self, event: LiveEvent) -> None:
        match event.kind:
            case "begun":
                if (cut := self._texts.get(event.run_id)) is not None and cut.current:
                    # Its process was killed in the middle of this step, which another begins again.
                    self._pass_on(LiveEvent(event.run_id, "afresh"))
                self._texts[event.run_id] = _TextSoFar(0 if event.run is None else event.run.steps)
            case "ended":
                self._texts.pop(event.run_id, None)
            case _ if (so_far := self._texts.get(event.run_id)) is not None:
                so_far.note(event)
            case _:
                pass
        for listener in (*self._listeners.get(event.run_id, ()), *self._listeners.get("*", ())):
            listener(event)


class TextDeduplicator:
    """Passes the text of a step on once, even if the endpoint starts the answer again: what was sent cannot be taken back."""

    def __init__(self) -> None:
        self._passed_on = ""
        self._repeated: str | None = None

    def restart(self) -> None:
        self._repeated = ""

    def end_step(self) -> None:
        self._passed_on, self._repeated = "", None

    def new_in(self, text: str) -> str:
        """Returns the part of the text that was not passed on yet: of a repeated answer nothing while it is the same, then what differs."""
        if self._repeated is None:
            self._passed_on += text
            return text
        self._repeated += text
        if self._passed_on.startswith(self._repeated):
            return ""
        goes_on = self._repeated.startswith(self._passed_on)
        new = self._repeated.removeprefix(self._passed_on) if goes_on else f"\n\n{self._repeated}"
        self._passed_on, self._repeated = self._repeated, None
        return new
