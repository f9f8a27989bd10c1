"""Processes killed at any moment, forty times on each platform, with a ledger: every message answered, once or, where nobody can know, twice."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.chats import crash_guard
from tests.e2e.platforms.conftest import make
from tests.e2e.platforms.driver import Driver
from tests.e2e.platforms.scene import daemon, process
from tests.e2e.telegram.daemon import settled
from tests.fakes.model_server import ModelServer
from tests.machine import free_port

_NUMBER = re.compile(r"ping (\d+)")


def echo(body: dict) -> str:
    """What was asked, as the model's answer: every number that is new."""
    return " ".join(re.findall(r"ping \d+", str(body["messages"][-1]["content"]))) or "ok"


async def killed_often(home: Path, driver: Driver, kills: int, seed: int) -> Counter[int]:
    """How often each message was answered."""
    dice, ledger = random.Random(seed), Counter[int]()
    async with driver.server, ModelServer(echo) as model:
        sections = {"model": {"base_url": model.url, "name": "m", "api_key": "k"}}
        port, dm = free_port(), driver.dm()
        for kill in range(kills):
            before = driver.starts()
            running = await process(home, driver, port, sections=sections)
            await driver.server.until(lambda before=before: driver.starts() > before, timeout=60)
            driver.says(dm, f"ping {kill}")
            if dice.random() < 0.3:
                driver.double()
            await asyncio.sleep(dice.uniform(0, 0.6))  # the moment is what is tried
            running.kill()
            await running.wait()
            # Three kills before anything is done would hold the platforms.
            (home / crash_guard.FILE).unlink(missing_ok=True)
            if dice.random() < 0.3:
                driver.says(dm, f"ping {kills + kill}")
        async with daemon(home, driver, sections=sections) as s:
            wanted = {
                int(n)
                for said in dm.messages.values()
                if said.author is driver.owner
                for n in _NUMBER.findall(said.text)
            }
            async with asyncio.timeout(600):
                while not wanted <= set(_answered(driver)):
                    await asyncio.sleep(0.1)
            await settled(s.app.database)
        ledger.update(_answered(driver))
    most = 1 if driver.sends_once else 2
    assert {number: times for number, times in ledger.items() if times > most} == {}
    assert set(ledger) == wanted
    assert driver.server.violations == []
    return ledger


def _answered(driver: Driver) -> list[int]:
    return [int(number) for text in driver.texts(driver.dm()) for number in _NUMBER.findall(text)]


async def test_three_kills(home: Path, driver: Driver) -> None:
    await killed_often(home, driver, 3, seed=7)


@pytest.mark.chaos
@pytest.mark.parametrize("name", ["whatsapp", "slack", "discord"])
async def test_forty_kills(home: Path, name: str, record_property: Callable[[str, object], None]) -> None:
    ledger = await killed_often(home, make(name), 40, seed=40)
    record_property("messages", len(ledger))
    record_property("answered twice", sum(times > 1 for times in ledger.values()))
