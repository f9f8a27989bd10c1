"""What a run says while it says it. May be lost: everything that counts is in the journal."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sessions.records import Run

Kind = Literal["begun", "token", "afresh", "said", "tool", "tool_done", "ended"]


@dataclass(frozen=True, slots=True)
class Moment:
    """`begun`: work on the run begins (or goes on), with the run. `token`: text grew by this. `afresh`: what was shown is void.
    `said`: the words of this step are whole. `tool`: this tool begins; `tool_done`: it has ended. `ended`: nobody works on the run any
    more: it is over, or it waits."""

    run_id: str
    kind: Kind
    text: str = ""
    run: Run | None = None


Listener = Callable[[Moment], None]


class Live:
    """Passes moments on to whoever listens to a run. Listeners must be quick."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Listener]] = defaultdict(list)

    def listen(self, run_id: str, listener: Listener) -> Callable[[], None]:
        """`*` hears every run. Returns how to stop."""
        self._listeners[run_id].append(listener)

        def stop() -> None:
            self._listeners[run_id].remove(listener)
            if not self._listeners[run_id]:
                del self._listeners[run_id]

        return stop

    def tell(self, moment: Moment) -> None:
        for listener in (*self._listeners.get(moment.run_id, ()), *self._listeners.get("*", ())):
            listener(moment)
