"""Decides when a doubtful message is sent again. A message is doubtful when its send was cut off, so it may have arrived.

Before it is sent again, a harmless call to the chat (a probe) must succeed; not where the platform has no such call, or still recognises a
repeated message itself. After how many tries and how long it is given up, `sessions/outbox.py` says.
"""

from collections import Counter

from adapters.base import Adapter, DeliveryError, SendsOnce, TryLater, Unauthorized
from sessions.records import OutRow, OutState

EDITS = 3
"""How often a preview is tried to be made the answer, while the chat takes other calls; then the answer is a new message."""
PROBE_PAUSES = (2, 5, 10, 20, 30, 60)
"""Seconds until a chat is probed again that took no call. The last one is repeated."""
TRY_PAUSES = (2, 15, 60)
"""Seconds until a message is sent again that may have arrived, although the chat takes other calls."""
BLIND_PAUSES = (30, 60, 300)
"""The same on a platform that has no harmless call."""


class Probes:
    """Probes of one platform. Rows that an earlier process left in doubt need one, too."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._remembers_ms = adapter.remembers_for * 1000 if isinstance(adapter, SendsOnce) else 0
        self._unanswered = Counter[int]()
        """Row → how many probes have failed since it got no answer. Also rows of edits, which are never in doubt."""
        self._edits_failed = Counter[int]()

    def needs_probe(self, row: OutRow, waited_ms: int) -> bool:
        """Returns whether this row needs a probe before it is sent again. Not while the platform itself recognises a repeated message."""
        doubted = row.state is OutState.UNKNOWN or row.doubts > 0 or row.id in self._unanswered
        return doubted and self._adapter.can_probe and waited_ms >= self._remembers_ms

    async def probe(self, row: OutRow) -> None:
        """Returns when the chat takes calls. Raises TryLater, with the pause until the next probe, or Unauthorized."""
        failed = self._unanswered[row.id]
        try:
            await self._adapter.probe(row.address.address)
        except TryLater as error:
            self._unanswered[row.id] += 1
            pause = PROBE_PAUSES[min(failed, len(PROBE_PAUSES) - 1)]
            raise TryLater(str(error), after=max(error.after or 0, pause)) from error
        except Unauthorized:  # the token, not this chat
            raise
        except DeliveryError:  # refused: somebody has heard the call, so a message is heard too
            pass
        self._unanswered[row.id] = 0

    def failed(self, row: OutRow, error: TryLater, *, edits: bool) -> None:
        """Notes that a message or an edit got no answer, or that the platform asked to try it later."""
        chat_takes_calls = not error.ambiguous or row.id in self._unanswered
        if edits and chat_takes_calls:
            self._edits_failed[row.id] += 1
        if error.ambiguous:
            self._unanswered[row.id] = 0

    def edits_keep_failing(self, row: OutRow) -> bool:
        """Returns True when edits for this row fail again and again while the chat takes other calls."""
        return self._edits_failed[row.id] >= EDITS

    def pause(self, doubts: int) -> float:
        """Returns the seconds until the next try of a message with so many doubtful sends."""
        pauses = TRY_PAUSES if self._adapter.can_probe else BLIND_PAUSES
        return pauses[min(doubts, len(pauses)) - 1]

    def forget(self, row: OutRow) -> None:
        self._unanswered.pop(row.id, None)
        self._edits_failed.pop(row.id, None)
