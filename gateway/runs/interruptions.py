"""Decides whether a chat is told that its run was interrupted: only when somebody can have noticed."""

from collections.abc import Sequence

from gateway.texts import say

UNNOTICED_MS = 60_000
_SHOWN = 200


def interruption_notice(away_ms: int, unsure: Sequence[str]) -> str | None:
    """Returns the text for the chat, or None. `unsure`: the calls of which nobody knows whether they were executed."""
    if unsure:
        shown = ", ".join(unsure)
        return say("run.continued_unsure", what=shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…")
    return say("run.continued") if away_ms > UNNOTICED_MS else None
