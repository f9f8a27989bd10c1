"""When a row is tried again that the platform has not taken."""

from typing import Any

import pytest

from adapters.base import TryLater
from gateway.chats.delivery import BLIND_PAUSES, TRY_PAUSES, retry_decision
from sessions import outbox
from sessions.records import OutRow

NOW = 1_000_000


def row(*, attempts: int = 0, doubts: int = 0) -> OutRow:
    known: dict[str, Any] = dict.fromkeys(OutRow.__slots__)
    return OutRow(**{**known, "attempts": attempts, "doubts": doubts})


@pytest.mark.parametrize(
    ("error", "tried", "seconds"),
    [
        (TryLater("refused"), row(), 1),
        (TryLater("refused"), row(attempts=3), 10),
        (TryLater("refused"), row(attempts=100), 300),
        (TryLater("slowly", after=7), row(attempts=100), 7),
        (TryLater("elsewhere", after=0), row(attempts=3), 0),
        (TryLater("slowly", after=1e9), row(), outbox.LONGEST_WAIT_MS / 1000),
        (TryLater("no answer", ambiguous=True), row(), TRY_PAUSES[0]),
        (TryLater("no answer", ambiguous=True), row(doubts=1), TRY_PAUSES[1]),
        (TryLater("no answer", ambiguous=True, after=90), row(), 90),
    ],
)
def test_it_waits_as_long_as_the_platform_asks_or_ever_longer(error: TryLater, tried: OutRow, seconds: float) -> None:
    decision = retry_decision(tried, error, NOW)
    assert (decision.due_at, decision.doubtful) == (NOW + seconds * 1000, error.ambiguous)


def test_without_a_harmless_call_it_waits_longer() -> None:
    decision = retry_decision(row(), TryLater("no answer", ambiguous=True), NOW, can_probe=False)
    assert decision.due_at == NOW + BLIND_PAUSES[0] * 1000


def test_what_may_have_arrived_too_often_is_given_up_and_nothing_else() -> None:
    often = row(attempts=9, doubts=outbox.FURTHER_TRIES)
    assert retry_decision(often, TryLater("no answer", ambiguous=True), NOW).gives_up
    assert not retry_decision(often, TryLater("refused"), NOW).gives_up


def test_an_edit_is_never_in_doubt() -> None:
    often = row(doubts=outbox.FURTHER_TRIES)
    decision = retry_decision(often, TryLater("no answer", ambiguous=True), NOW, edits=True)
    assert decision.due_at == NOW + 1_000
    assert not decision.doubtful
    assert not decision.gives_up
