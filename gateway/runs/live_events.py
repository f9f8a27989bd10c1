"""Live events of runs. They may be lost: everything that counts is in the journal."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sessions.records import Run

Kind = Literal["begun", "token", "afresh", "said", "answered", "turned", "tool", "tool_done", "heading", "ended"]


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something that happened to a run just now. Its kinds:

    `begun`: work on the run begins or goes on; `run` is set. `token`: the text of the answer grew by `text`. `afresh`: the endpoint starts
    its answer again, so the text of this step is void. `said`: the text of this step is complete. `answered`: it is sent as an answer, and
    the run goes on with messages that came in meanwhile. `turned`: what comes next answers another message; `run` is set. `tool`: this
    tool begins. `tool_done`: it has ended. `heading`: the line above the answer. `ended`: nobody works on the run any more: it is over, or
    it waits.
    """

    run_id: str
    kind: Kind
    text: str = ""
    run: Run | None = None


Listener = Callable[[LiveEvent], None]


class _TextSoFar:
    """Collects what was said since work on a run began: whole steps, and the one that grows."""

    __slots__ = ("before", "growing", "steps")

    def __init__(self, before: int) -> None:
        self.before = before
        self.steps: list[str] = []
        self.growing: list[str] = []

    def note(self, moment: LiveEvent) -> None:
        match moment.kind:
            case "token":
                self.growing.append(moment.text)
            case "afresh":
                self.growing.clear()
            case "said":
                self.steps.append("".join(self.growing))
                self.growing.clear()
            case _:
                pass


class LiveEvents:
    """Passes events to the listeners of a run. Listeners must return at once."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = defaultdict(list)
        self._words: dict[str, _TextSoFar] = {}

    def listen(self, run_id: str, listener: Listener) -> Callable[[], None]:
        """Calls the listener with the events of this run; `*`: of every run. Returns a function that stops it."""
        self._listeners[run_id].append(listener)

        def stop() -> None:
            self._listeners[run_id].remove(listener)
            if not self._listeners[run_id]:
                del self._listeners[run_id]

        return stop

    def steps_before(self, run_id: str) -> int | None:
        """Returns how many steps the run had when work on it began here; None when nobody works on it here."""
        words = self._words.get(run_id)
        return None if words is None else words.before

    def replay(self, run_id: str, listener: Listener) -> None:
        """Calls the listener, now, with the events since work on the run began; not at all for a run that nobody works on here."""
        words = self._words.get(run_id)
        if words is None:
            return
        for step in words.steps:
            listener(LiveEvent(run_id, "token", step))
            listener(LiveEvent(run_id, "said"))
        if words.growing:
            listener(LiveEvent(run_id, "token", "".join(words.growing)))

    def publish(self, moment: LiveEvent) -> None:
        """Passes the event to its listeners."""
        match moment.kind:
            case "begun":
                self._words[moment.run_id] = _TextSoFar(0 if moment.run is None else moment.run.steps)
            case "ended":
                self._words.pop(moment.run_id, None)
            case _ if (words := self._words.get(moment.run_id)) is not None:
                words.note(moment)
            case _:
                pass
        for listener in (*self._listeners.get(moment.run_id, ()), *self._listeners.get("*", ())):
            listener(moment)
