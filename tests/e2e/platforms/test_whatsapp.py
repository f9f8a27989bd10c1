"""What only WhatsApp has: signatures, handshakes, two ids of one person, the day after which nothing is delivered."""

import hashlib
import hmac
from pathlib import Path

import aiohttp
import pytest
from sqlalchemy import text

from adapters.testing.people import SentFile
from gateway.config.problems import BadConfig
from gateway.config.reading import load
from tests.e2e.platforms.scene import answering, scene, write_config
from tests.e2e.platforms.whatsapp import WhatsAppDriver
from tests.e2e.telegram.daemon import settled, until_dead


@pytest.fixture
def driver() -> WhatsAppDriver:
    return WhatsAppDriver()


async def test_the_handshake_is_answered_to_whoever_knows_the_word(home: Path, driver: WhatsAppDriver) -> None:
    async with scene(home, driver):
        assert await driver.server.handshake() == (200, "1158201444")
        assert (await driver.server.handshake("wrong"))[0] == 403


async def test_wrong_missing_and_old_signatures_are_refused_before_parsing(home: Path, driver: WhatsAppDriver) -> None:
    async with scene(home, driver) as s, aiohttp.ClientSession() as client:
        body = b"this is no JSON \xff"
        wrong = hmac.new(b"other", body, hashlib.sha256).hexdigest()
        for headers in ({}, {"X-Hub-Signature-256": ""}, {"X-Hub-Signature-256": f"sha256={wrong}"}):
            async with client.post(driver.server.webhook, data=body, headers=headers) as answer:
                assert answer.status == 401
        async with client.post(driver.server.webhook, data=b"x" * 64_000_000, headers=driver.server.signed(b"")) as big:
            assert big.status == 413
        assert await s.answer_to("hello")


def test_without_its_secrets_it_does_not_start(home: Path, driver: WhatsAppDriver) -> None:
    write_config(home, driver, app_secret="", verify_token="", api_base="http://127.0.0.1:1/v23.0")
    with pytest.raises(BadConfig) as raised:
        load(home, {})
    assert {problem.path for problem in raised.value.problems} == {
        "platforms.whatsapp.app_secret",
        "platforms.whatsapp.verify_token",
    }


async def test_a_number_and_a_business_scoped_id_are_one_person(home: Path, driver: WhatsAppDriver) -> None:
    async with scene(home, driver) as s:
        scoped = driver.server.person("", "Ann", scoped="DE.13491208655302741918")
        await s.answer_to("hello")
        room = driver.server.dm(scoped)
        assert await s.answer_to("it is me, without a number", room, person=scoped)
        keys = await s.app.database.read(lambda conn: list(conn.scalars(text("SELECT session_key FROM sessions"))))
        assert keys == [f"agent:main:whatsapp:dm:{driver.owner_id}"]
        assert driver.server.called("text")[-1]["recipient"] == scoped.id


async def test_who_was_first_known_without_a_number_stays_so(home: Path, driver: WhatsAppDriver) -> None:
    async with scene(home, driver, allowed_users=["DE.5"]) as s:
        first = driver.server.person("", "Cy", scoped="DE.5")
        await s.answer_to("hello", driver.server.dm(first), person=first)
        later = driver.server.person("491700000005", "Cy", scoped="DE.5")
        await s.answer_to("now with a number", driver.server.dm(later), person=later)
        keys = await s.app.database.read(lambda conn: list(conn.scalars(text("SELECT session_key FROM sessions"))))
        assert keys == ["agent:main:whatsapp:dm:DE.5"]


async def test_the_owner_hears_of_a_message_that_the_24_hour_window_held_back(
    home: Path, driver: WhatsAppDriver
) -> None:
    async with scene(home, driver, allowed_users=[driver.owner_id, "491700000066"]) as s:
        await s.answer_to("hello")
        driver.says(driver.dm(driver.stranger), "hello", person=driver.stranger)
        await s.answers(driver.dm(driver.stranger), 1)
        (said,) = driver.said_by_bot(driver.dm(driver.stranger))
        await settled(s.app.database)
        driver.server.failed(said, driver.dm(driver.stranger), 131047)
        assert "24 hours" in (await s.answers(driver.dm(), 2))[-1]
        (why,) = await until_dead(s, 1)
        assert "24 hours" in why


async def test_it_is_read_and_typing_is_shown(home: Path, driver: WhatsAppDriver) -> None:
    from tests.e2e.telegram.daemon import Gate
    from tests.fakes.model_replies import Reply

    gate = Gate()
    async with answering(home, driver, Reply(chunks=("One ", "two."), between=gate)) as s:
        said = s.says("hello")
        await s.until(lambda: said.id in driver.server.read)
        assert driver.dm().typing == 1
        gate.open.set()
        await s.answers(driver.dm(), 1)


async def test_a_file_that_lies_at_another_host_gets_no_token(home: Path, driver: WhatsAppDriver) -> None:
    async with scene(home, driver) as s:
        where = {"id": "1", "url": "https://evil.example/steal", "file_size": 3}
        driver.server.fail("where", status=200, body=where)
        answer = await s.answer_to("see", file=SentFile("a.txt", b"abc", "text/plain"))
        assert "could not download" in answer


async def test_unknown_kinds_get_a_polite_line(home: Path, driver: WhatsAppDriver) -> None:
    async with scene(home, driver) as s:
        driver.server.says(driver.dm(), driver.owner, type="unsupported", text=None)
        assert "cannot read this kind" in (await s.answers(driver.dm(), 1))[0]


async def test_the_menu_is_offered(home: Path, driver: WhatsAppDriver) -> None:
    async with scene(home, driver) as s:
        await s.until(lambda: driver.server.menu)
        assert {
            "command_name": "new",
            "command_description": "start afresh; the old conversation is kept",
        } in driver.server.menu
