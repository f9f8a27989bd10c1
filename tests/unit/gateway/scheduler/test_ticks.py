"""Ticks come at their pace, whatever the machine's clock does."""

import asyncio
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from apscheduler.schedulers import base

from gateway.context import every
from gateway.scheduler import ticks
from sessions.db import Database
from tests.app import make_app


class AdjustableTime(datetime):
    ahead = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # pyright: ignore[reportIncompatibleMethodOverride]
        return datetime.now(tz) + cls.ahead


async def test_a_clock_that_is_set_back_stops_no_tick(home: Path, sqlite: Database, monkeypatch: pytest.MonkeyPatch):
    for module in (base, ticks):
        monkeypatch.setattr(module, "datetime", AdjustableTime)
    monkeypatch.setattr(ticks, "CLOCK_SECONDS", 0.05)
    monkeypatch.setattr(AdjustableTime, "ahead", timedelta(days=1))
    ticked = asyncio.Semaphore(0)

    class Work:
        @every(0.05, "tick")
        async def tick(self) -> None:
            ticked.release()
            raise ValueError("a tick that fails does not stop the next one")

    async with asyncio.timeout(30), ticks.ticking(make_app(home, sqlite), Work()):
        for _ in range(3):
            await ticked.acquire()
        AdjustableTime.ahead = timedelta()
        for _ in range(5):
            await ticked.acquire()
