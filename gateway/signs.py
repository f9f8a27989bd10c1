"""Whether a platform can be reached again after it left a message without an answer, so that no try is spent on an outage."""

from adapters.base import Adapter, ReportsLiveness, TryLater
from sessions.records import OutRow, OutState

EDITS = 3
"""How often a preview is tried to be made the answer, while the platform answers; then the answer is a new message."""


class Signs:
    """Of one platform, for the rows of its outbox. What an earlier process knew of them is not needed: any sign is a new one."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter if isinstance(adapter, ReportsLiveness) else None
        self._unheard: dict[
            int, float | None
        ] = {}  # rows without an answer, and the last sign that there had been then
        self._in_vain: set[int] = set()

    @property
    def are_given(self) -> bool:
        return self._adapter is not None

    def lacks(self, row: OutRow) -> bool:
        """Nothing shows that the platform can be reached again since this row got no answer."""
        if self._adapter is None or not (row.id in self._unheard or row.state is OutState.UNKNOWN):
            return False
        return self._unheard.get(row.id) == self._adapter.last_success()

    def edits_in_vain(self, row: OutRow) -> bool:
        """Edits of this row fail again and again while the platform answers otherwise."""
        return row.id in self._in_vain

    def failed(self, row: OutRow, error: TryLater, *, edits: bool) -> None:
        sign = self._adapter.last_success() if self._adapter else None
        lives = not self._adapter or not error.ambiguous or self._unheard.get(row.id, sign) != sign
        if edits and lives and row.attempts + 1 >= EDITS:
            self._in_vain.add(row.id)
        if error.ambiguous and not (edits and row.id in self._unheard):
            self._unheard[row.id] = sign

    def forget(self, row: OutRow) -> None:
        self._unheard.pop(row.id, None)
        self._in_vain.discard(row.id)
