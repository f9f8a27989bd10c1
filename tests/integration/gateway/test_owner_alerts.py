"""The owner hears of the six conditions, once a day each."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from gateway.chats.owner_alerts import OwnerAlerts, alert_text
from gateway.observe.alerts import (
    Alert,
    Condition,
    RecentCalls,
    SystemReading,
    alerts,
)
from gateway.observe.metrics import Metrics
from sessions import spending
from sessions.clock import iso
from sessions.db import Database
from sessions.db.schema import outbox
from tests.app import enable, make_app
from tests.integration.gateway.intake_in_process import HandClock, IntakeHarness

NOW = 1_800_000_000_000
MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def conditions(reading: SystemReading) -> list[Condition]:
    return [alert.condition for alert in alerts(reading)]


@pytest.mark.parametrize(
    ("reading", "raised"),
    [
        (SystemReading(now=NOW), []),
        (SystemReading(now=NOW, silent_since={"slack": NOW - 5 * MINUTE}), []),
        (SystemReading(now=NOW, silent_since={"slack": NOW - 5 * MINUTE - 1}), [Condition.PLATFORM_SILENT]),
        (SystemReading(now=NOW, oldest_unread=NOW - 10 * MINUTE), []),
        (SystemReading(now=NOW, oldest_unread=NOW - 10 * MINUTE - 1), [Condition.REPLIES_LATE]),
        (SystemReading(now=NOW, oldest_due=NOW - 5 * MINUTE - 1), [Condition.REPLIES_LATE]),
        (SystemReading(now=NOW, undelivered={"telegram": 2}), [Condition.DEAD_LETTERS]),
        (SystemReading(now=NOW, calls=4, failed_calls=4), []),
        (SystemReading(now=NOW, calls=10, failed_calls=2), []),
        (SystemReading(now=NOW, calls=10, failed_calls=3), [Condition.MODEL_FAILING]),
        (SystemReading(now=NOW, tokens=10_000_000), []),
        (SystemReading(now=NOW, tokens=150_001, usual_tokens=30_000), [Condition.TOKENS_UNUSUAL]),
        (SystemReading(now=NOW, tokens=150_000, usual_tokens=30_000), []),
        (SystemReading(now=NOW, refused_problems=3), [Condition.CONFIG_REFUSED]),
    ],
)
def test_the_conditions(reading: SystemReading, raised: list[Condition]):
    assert conditions(reading) == raised


@pytest.mark.parametrize("condition", Condition)
def test_each_has_its_words(condition: Condition):
    details = {"platform": "slack", "minutes": "6", "count": "2", "failed": "3", "calls": "10", "tokens": "5"}
    assert alert_text(Alert(condition=condition, details=details))


def test_calls_are_counted_over_ten_minutes_and_tokens_over_thirty():
    calls = RecentCalls()
    calls.add(NOW - 31 * MINUTE, failed=True, tokens=1)
    calls.add(NOW - 11 * MINUTE, failed=True, tokens=10)
    calls.add(NOW - 1 * MINUTE, failed=True, tokens=100)
    calls.add(NOW, failed=False, tokens=1_000)
    assert calls.counts(NOW) == (2, 1)
    assert calls.tokens(NOW) == 1_110
    calls.clear()
    assert (calls.counts(NOW), calls.tokens(NOW)) == ((0, 0), 0)


def test_a_busy_hour_takes_no_more_memory_than_a_quiet_one():
    calls = RecentCalls()
    for number in range(10_000):
        calls.add(NOW + number % 500, failed=False, tokens=1)
    assert calls.counts(NOW + MINUTE) == (10_000, 0)
    assert len(pickle.dumps(calls)) < 1_000


def test_the_metrics_count_the_calls():
    metrics = Metrics()
    for outcome in ("answered", "unreachable", "adapted"):
        metrics.model_called("m", outcome, 1.0, None)
    assert metrics.recent_calls.counts(NOW * 2)[0] == 0


def alerts_sent(conn: Connection) -> Sequence[str]:
    return [row.body for row in conn.execute(select(outbox).where(outbox.c.dedup_key.startswith("alert:")))]


class SilentSlack:
    def silent_since(self) -> dict[str, int]:
        return {"slack": NOW - DAY}


def alerts_of(database: Database, clock: HandClock, calls: RecentCalls, *, refused: int) -> OwnerAlerts:
    app = make_app(Path("/nonexistent"), database, clock=clock)
    enable(app, "telegram")
    app.metrics.recent_calls = calls
    app.reloads.refused([f"problem {number}" for number in range(refused)])
    return OwnerAlerts(app)


async def test_the_owner_hears_of_it_once_a_day(database: Database):
    await IntakeHarness(database, HandClock(NOW)).comes("hello")  # the owner has a chat of their own
    clock, calls = HandClock(NOW), RecentCalls()
    for days in range(1, 4):
        await database.write(spending.add, iso(NOW - days * DAY)[:10], "", input_tokens=48_000)
    calls.add(NOW, failed=False, tokens=500_000)
    under_test = alerts_of(database, clock, calls, refused=2)
    under_test.app.chats = SilentSlack()  # type: ignore[assignment]
    for _ in range(3):
        await under_test.check()
    bodies = await database.read(alerts_sent)
    assert len(bodies) == 3
    assert any("slack has been silent" in body for body in bodies)
    assert any("(500,000)" in body for body in bodies)
    clock.now += DAY
    await under_test.check()
    # The tokens are usual again, but what was said above waits for a day.
    assert len(await database.read(alerts_sent)) == 6


async def test_where_nobody_is_the_owner_nothing_is_sent(sqlite: Database):
    under_test = alerts_of(sqlite, HandClock(NOW), RecentCalls(), refused=1)
    await under_test.check()
    assert await sqlite.read(alerts_sent) == []
    assert [alert.condition for alert in under_test.current] == [Condition.CONFIG_REFUSED]
