"""Sends the owner a message when an alert's condition holds, at most once a day for each condition."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection

from gateway.chats.runner import PlatformState
from gateway.context import App, every
from gateway.observe.alerts import Alert, SystemReading, alerts
from gateway.observe.logging import get_logger
from gateway.texts import say
from sessions import gauges, outbox, spending, workers
from sessions.clock import iso
from sessions.jobs.delivery import owner_route
from sessions.messages import Content
from sessions.workers import WorkerState

log = get_logger(__name__)

EVERY_SECONDS = 60.0
_WELL = frozenset({PlatformState.CONNECTED, PlatformState.STANDBY, "held", "not_installed"})
_DAY_MS = 24 * 3_600_000
_WEEK_DAYS = 7
_KNOWN_DAYS = 3
"""So many days of a week have to be known before anything is unusual."""
_HALF_HOURS = 48


class OwnerAlerts:
    """Checks the conditions every minute."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.current: Sequence[Alert] = ()

    @every(EVERY_SECONDS, "alerts")
    async def check(self) -> None:
        now = self.app.clock()
        reading = await self.app.database.read(self._read, now)
        before, self.current = set(map(_name, self.current)), tuple(alerts(reading))
        for alert in self.current:
            if _name(alert) not in before:
                log.warning("alert.raised", condition=str(alert.condition), about=alert.about)
        if self.current:
            await self.app.database.write(_send_alerts, self.current, self.app.config.platforms.in_use(), now)

    def _read(self, conn: Connection, now: int) -> SystemReading:
        numbers = gauges.read_gauges(conn)
        calls, failed = self.app.metrics.recent_calls.counts(now)
        return SystemReading(
            now=now,
            silent_since={
                **_silent_elsewhere(conn, now),
                **(self.app.chats.silent_since() if self.app.chats is not None else {}),
            },
            oldest_unread=numbers.oldest_unread,
            oldest_due=numbers.oldest_due,
            undelivered=numbers.undelivered,
            calls=calls,
            failed_calls=failed,
            tokens=self.app.metrics.recent_calls.tokens(now),
            usual_tokens=_usual_tokens(conn, now),
            refused_problems=len(self.app.reloads.last_refused.problems) if self.app.reloads.last_refused else 0,
        )


def _silent_elsewhere(conn: Connection, now: int) -> dict[str, int]:
    """Returns the platforms that other processes of the team hold and are not connected with, with the time since when."""
    found: dict[str, int] = {}
    for row in workers.everyone(conn):
        if row.state_at(now) is WorkerState.READY:
            for name, part in row.report.get("parts", {}).items():
                if name != "database" and part["state"] not in _WELL and part.get("since"):
                    found[name] = round(datetime.fromisoformat(part["since"]).timestamp() * 1000)
    return found


def alert_text(alert: Alert) -> str:
    return say(f"alert.{alert.condition}", **alert.details)


def _name(alert: Alert) -> str:
    return f"{alert.condition}:{alert.about}"


def _send_alerts(conn: Connection, found: Sequence[Alert], platforms: Collection[str], now: int) -> None:
    route = owner_route(conn, platforms)
    if route is None:
        return
    for alert in found:
        key = f"alert:{_name(alert)}:{now // _DAY_MS}"  # the outbox has each key once, so it is sent once a day, also after a restart
        outbox.put(conn, route, Content(text=alert_text(alert)), now, dedup_key=key, session_key="")


def _usual_tokens(conn: Connection, now: int) -> float | None:
    """Returns the tokens of half an hour, on average over the days of the last week that had any."""
    used = [sum(spending.of_day(conn, iso(now - days * _DAY_MS)[:10])) for days in range(1, _WEEK_DAYS + 1)]
    known = [tokens for tokens in used if tokens]
    return sum(known) / len(known) / _HALF_HOURS if len(known) >= _KNOWN_DAYS else None
