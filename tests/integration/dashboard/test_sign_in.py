"""Who may see the page in the browser, and from where a form may come."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.api.http.server_state import Intervals
from gateway.config.sections import PersonSection
from gateway.dashboard.server import COOKIE
from sessions import audit, sign_ins
from tests.conftest import HandClock
from tests.integration.api.serving import OWNER, Gateway, gateway
from tests.integration.dashboard.visiting import Visitor, signed_in

HOUR = 3_600_000


async def link(gw: Gateway) -> str:
    return await gw.database.write(sign_ins.new_link, "cli:ann", gw.app.clock())


async def test_a_link_signs_in_once(home: Path, database_url: str) -> None:
    async with gateway(home, works=False, database_url=database_url) as gw:
        secret = await link(gw)
        visitor = Visitor(gw)
        # Somebody's preview of links opens it first, and burns nothing.
        status, text, _ = await visitor.get("/ui/login")
        assert status == 200
        assert "<button" in text
        status, _, headers = await visitor.send("/ui/login", {"secret": secret}, Origin=gw.url)
        assert status == 303
        cookie = headers["Set-Cookie"]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/ui"))
        assert "Secure" not in cookie
        assert await Visitor(gw).sign_in(secret) == 401
        assert await gw.database.read(audit.actions, "dashboard") == [("cli:ann", "dashboard.signed_in")]


async def test_without_a_sign_in_nothing_is_shown(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        for path in ("/ui/", "/ui/sessions", "/ui/nothing", "/ui/sessions/x/export"):
            status, text, headers = await Visitor(gw).get(path)
            assert (status, "hermes dashboard" in text) == (401, True)
            assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert (await Visitor(gw, "made-up").get("/ui/"))[0] == 401
        assert (await Visitor(gw).send("/ui/logout", {}))[0] == 401


async def test_a_key_opens_no_page_and_a_cookie_no_api(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        assert (await Visitor(gw).get("/ui/", Authorization=f"Bearer {OWNER.secret}"))[0] == 401
        visitor = await signed_in(gw)
        for path in ("/v1/models", "/api/jobs", "/metrics"):
            assert (await visitor.get(path))[0] == 401


async def test_it_ends_after_hours_of_rest_after_a_month_and_by_hand(home: Path) -> None:
    clock = HandClock()
    async with gateway(home, works=False, wall=clock) as gw:
        secret = await link(gw)
        clock.tick(sign_ins.LINK_MS)
        assert await Visitor(gw).sign_in(secret) == 401
        visitor = await signed_in(gw)
        for _ in range(80):  # in use all the time
            clock.tick(11 * HOUR)
            if (await visitor.get("/ui/"))[0] != 200:
                break
        assert 29 * 24 * HOUR < clock() - HandClock()() <= 31 * 24 * HOUR
        visitor = await signed_in(gw)
        clock.tick(12 * HOUR)
        assert (await visitor.get("/ui/"))[0] == 401
        visitor = await signed_in(gw)
        assert (await visitor.post("/ui/logout"))[0] == 303
        assert (await visitor.get("/ui/"))[0] == 401
        visitor, unused = await signed_in(gw), await link(gw)
        assert await gw.database.write(sign_ins.revoke_all, "ann", clock()) >= 1
        assert (await visitor.get("/ui/"))[0] == 401
        assert await visitor.sign_in(unused) == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({}, 303),
    ],
)
async def test_forms_come_from_our_pages(home: Path, headers: dict[str, str], status: int) -> None:
    async with gateway(home, works=False) as gw:
        visitor = await signed_in(gw)
        await visitor.post("/ui/doctor-is-not-here")  # it learns the value of its forms
        sent = {"csrf": visitor.csrf, "name": "x"}
        assert (await visitor.send("/ui/logout", sent, **headers))[0] == status
        if status == 303:
            return
        assert (await visitor.get("/ui/"))[0] == 200  # nothing happened


async def test_a_form_without_its_value_does_nothing(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        visitor, other = await signed_in(gw), await signed_in(gw)
        await other.post("/ui/nowhere")
        for csrf in ("", "0" * 32, other.csrf):
            status, text, _ = await visitor.send("/ui/logout", {"csrf": csrf})
            assert (status, "Reload the page" in text) == (403, True)
        assert (await visitor.get("/ui/"))[0] == 200


async def test_another_host_is_misdirected(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        visitor = await signed_in(gw)
        assert (await visitor.get("/ui/", Host="evil.example"))[0] == 421
        assert (await visitor.get("/ui/login", Host="evil.example:80"))[0] == 421


async def test_from_elsewhere_only_over_tls(home: Path) -> None:
    section = {"public_url": "https://bot.example", "allowed_hosts": ["plain.example"]}
    async with gateway(home, works=False, sections={"api": section}) as gw:
        for host, status in (("plain.example", 403), ("bot.example", 303)):
            sent = await Visitor(gw).send(
                "/ui/login", {"secret": await link(gw)}, Host=host, **{"Sec-Fetch-Site": "same-origin"}
            )
            assert sent[0] == status
        assert "Secure" in sent[2]["Set-Cookie"]


async def test_wrong_links_are_slowed_down(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        answers = [await Visitor(gw).sign_in("wrong") for _ in range(15)]
        assert answers[0] == 401
        assert answers[-1] == 429


async def test_the_database_holds_no_secret(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        secret, visitor = await link(gw), await signed_in(gw)
        gw.database.checkpoint()
        stored = (home / "state.db").read_bytes()
        assert secret.encode() not in stored
        assert visitor.cookie.encode() not in stored
        assert COOKIE.encode() not in stored


async def test_an_open_page_does_not_hold_the_gateway_up(home: Path) -> None:
    async with asyncio.timeout(10):
        async with gateway(home, works=False, intervals=Intervals(shutdown=60)) as gw:
            visitor = await signed_in(gw)
            looks = {"Cookie": f"{COOKIE}={visitor.cookie}", "Accept": "text/event-stream"}
            shown = await gw.http.get(f"{gw.url}/ui/", headers=looks)
            assert await shown.content.readline()


async def test_a_person_of_the_team_has_to_be_an_admin(home: Path) -> None:
    admin = PersonSection(name="ann", scopes=["chat", "admin"])
    async with gateway(home, works=False) as gw:
        gw.app.loaded = replace(gw.app.loaded, config=gw.app.config.model_copy(update={"people": [admin]}))
        visitor = await signed_in(gw, "ann")
        assert (await visitor.get("/ui/"))[0] == 200
        looks = {"Cookie": f"{COOKIE}={visitor.cookie}", "Accept": "text/event-stream"}
        async with asyncio.timeout(20), gw.http.get(f"{gw.url}/ui/", headers=looks) as shown:
            assert b"waiting" in await shown.content.readline()
            # Taken away while she looks: what comes now is for others.
            chats = PersonSection(name="ann", scopes=["chat"])
            gw.app.loaded = replace(gw.app.loaded, config=gw.app.config.model_copy(update={"people": [chats]}))
            await (await signed_in(gw)).post("/ui/conversations", text="secret")
            assert b"secret" not in await shown.read()
        status, text, _ = await visitor.get("/ui/")
        assert (status, "no admin any more" in text) == (401, True)
