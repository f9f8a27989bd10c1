"""People with rights and limits of their own, over the wire: who may not, what it says, that nothing happens, and what the audit has."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config.reading import load
from gateway.texts import say
from sessions import asks, audit
from tests.e2e.platforms.conftest import make
from tests.e2e.platforms.driver import Driver
from tests.e2e.platforms.scene import PlatformScene, scene
from tests.e2e.telegram.daemon import scene as telegram_scene
from tests.fakes.model_replies import call, calls
from tests.fakes.model_server import ModelServer

APPROVAL = calls(call("process", {"action": "start", "command": "touch planted"}))


def acts(rows: list[audit.AuditRow]) -> list[tuple[str, str]]:
    return [(row.who, row.action) for row in rows]


@pytest.fixture(params=["slack", "discord"])
def driver(request: pytest.FixtureRequest) -> Driver:
    return make(request.param)


async def team(home: Path, driver: Driver, model: ModelServer, **limits: Any) -> dict[str, Any]:
    """Eve may chat, by the section people alone."""
    eve = {"name": "eve", "ids": [f"{driver.name}:{driver.stranger.id}"], **limits}
    return {
        "model": {"base_url": model.url, "name": "big", "api_key": "k"},
        "agents": {"main": {"tools": ["process", "ask_human"]}},
        "people": [eve],
    }


async def test_who_may_only_chat_approves_nothing(home: Path, driver: Driver) -> None:
    async with ModelServer([APPROVAL, "It is planted."]) as model:
        sections = await team(home, driver, model)
        async with scene(home, driver, sections=sections) as s:
            group = driver.group()
            driver.says(group, driver.mention("plant it"), person=driver.stranger)
            await s.until(lambda: any(said.labels for said in driver.said_by_bot(group)))
            card = next(said for said in driver.said_by_bot(group) if said.labels)
            driver.taps(group, card, card.labels[0], person=driver.stranger)
            await until_recorded(s, ("eve", "approval.refused"))
            assert not list(home.rglob("planted"))
            ask = await s.app.database.read(asks.get, 1)
            assert ask is not None
            assert ask.answered_at is None
            # The owner needs no line in the section: the bot is theirs.
            driver.taps(group, card, card.labels[0])
            await until_recorded(s, (f"{driver.name}:{driver.owner_id}", "approval.approved"))
            await s.until(lambda: list(home.rglob("planted")))


async def until_recorded(s: PlatformScene, act: tuple[str, str]) -> None:
    found: list[tuple[str, str]] = []

    def look() -> bool:
        found[:] = acts(s.app.database.read_now(audit.listing))
        return act in found

    await s.until(look)


async def test_who_may_approve_does(home: Path, driver: Driver) -> None:
    async with ModelServer([APPROVAL, "It is planted."]) as model:
        sections = await team(home, driver, model, scopes=["chat", "approve"])
        async with scene(home, driver, sections=sections) as s:
            group = driver.group()
            driver.says(group, driver.mention("plant it"), person=driver.stranger)
            await s.until(lambda: any(said.labels for said in driver.said_by_bot(group)))
            card = next(said for said in driver.said_by_bot(group) if said.labels)
            driver.taps(group, card, card.labels[0], person=driver.stranger)
            await until_recorded(s, ("eve", "approval.approved"))
            await s.until(lambda: list(home.rglob("planted")))


async def test_a_day_has_its_limit_for_each_person(home: Path, driver: Driver) -> None:
    ask = calls(call("ask_human", {"question": "Which one?", "options": ["red", "blue"]}))
    async with ModelServer([ask, "one", "two", "three"]) as model:
        sections = await team(home, driver, model, messages_per_day=1)
        async with scene(home, driver, sections={**sections, "limits": {"person_messages_per_day": 2}}) as s:
            room = driver.dm(driver.stranger)
            driver.says(room, "first", person=driver.stranger)
            await s.until(lambda: any(said.labels for said in driver.said_by_bot(room)))
            assert await s.answer_to("the red one", room, person=driver.stranger) == "one"  # no message of its own
            assert await s.answer_to("second", room, person=driver.stranger) == say("limits.day_messages", limit="1")
            assert len(model.calls) == 2
            assert await s.answer_to("mine") == "two"  # the owner has the limit of everybody
            rows = await s.app.database.read(audit.listing, action="limit")
            assert [(row.who, row.about) for row in rows] == [("eve", "messages_per_day")]


async def test_tokens_of_a_day_and_what_one_has_used(home: Path) -> None:
    async with ModelServer(["one", "two"]) as model:
        chosen = {"base_url": model.url, "name": "big", "api_key": "k"}
        sections = {"model": chosen, "limits": {"person_tokens_per_day": 10}}
        await use_up(home, model, sections)


async def use_up(home: Path, model: ModelServer, sections: dict[str, Any]) -> None:
    async with telegram_scene(home, sections=sections) as s:
        assert await s.answer_to("first") == "one"
        assert await s.answer_to("second") == say("limits.day_tokens", limit="10")
        assert len(model.calls) == 1
        assert " of 10 tokens, 1 messages" in (used := await s.answer_to("/usage")), used
        # An admin raises it by saving the file.
        path = home / "config.yaml"
        config = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**config, "limits": {"person_tokens_per_day": 1_000_000}}))
        await s.serving.reload(load(home, {}))
        assert await s.answer_to("third") == "two"
        rows = await s.app.database.read(audit.listing)
        assert [(row.action, row.about) for row in rows] == [
            ("owner.stored", "telegram:7"),
            ("limit.reached", "tokens_per_day"),
            ("config.changed", "limits.person_tokens_per_day"),
        ]
    # What is changed while no gateway runs is recorded by the next start, and once.
    now = {"model": sections["model"], "limits": {"person_messages_per_day": 9}}
    async with telegram_scene(home, sections=now) as s:
        *_, last = await s.app.database.read(audit.listing, action="config")
    assert {"limits.person_messages_per_day", "limits.person_tokens_per_day"} <= {*last.about.split(", ")}
    async with telegram_scene(home, sections=now) as s:
        *_, last = await s.app.database.read(audit.listing, action="config")
    assert last.about == "platforms.telegram.api_base"  # the fake has another port each time
