"""The page in a real browser: what it shows lives, by mouse, by keyboard, on a small screen, and without JavaScript."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from gateway.agent.tools.registry import Toolbox
from sessions import jobs, memory, outbox, runs, sign_ins, store, workers
from sessions.keys import Address, ChatKind, SessionKey
from sessions.messages import Content
from sessions.records import EndReason, Message, Role, Route, RunStatus
from sessions.workers import WorkerRow, WorkerState
from tests.app import give_tools
from tests.browser.visiting import BrowserVisitor, visiting
from tests.fakes.model_replies import Reply, call, calls
from tests.integration.api.serving import gateway

PICTURES = os.environ.get("PICTURES", "")
HOUR, DAY = 3_600_000, 86_400_000
PAGES = ("", "sessions", "runs", "time", "memory", "platforms")
CHAT = Route(address=Address(platform="telegram", kind=ChatKind.DM, chat_id="111"))
ASK = calls(call("ask_human", {"question": "Which colour?", "options": ["red", "blue"]}))
APPROVAL = calls(call("process", {"action": "start", "command": "touch garden.txt"}))


def furnish(conn: Any, now: int) -> None:
    """A home in which something has happened."""
    said = {
        "agent:main:telegram:dm": ("Tulips", "When do I plant tulips?", "In **October**, before the first frost."),
        "agent:main:slack:channel:C024": ("Deploys", "[Dana] Is the deploy done?", "Yes, at 16:40. Nothing failed."),
        "agent:main:discord:group:77": ("Weekend", "[Bo] Where do we meet?", "At the lake, as last time."),
    }
    for number, (key, (title, question, answer)) in enumerate(said.items(), 1):
        parsed = SessionKey.parse(key)
        at = now - number * 5 * HOUR
        session = store.start(conn, parsed, at, source=parsed.scope, title=title)
        rows = [Message(role=Role.USER, content=question), Message(role=Role.ASSISTANT, content=answer)]
        store.append(conn, session.id, rows, at)
        if number == 3:
            store.end(conn, session.id, EndReason.IDLE, now - HOUR)
        if number == 1:
            first = memory.note(conn, "agent:main", "Buys tulips at the market", at, session_id=session.id, src=[1])
            memory.note(
                conn, "agent:main", "Orders tulips by mail", at + 1, replaces=first.id, cause="the market closed"
            )
            memory.note(conn, "agent:main", "Prefers tea to coffee", at + 2, kind="preference")
    jobs.create(conn, jobs.new_job(name="weekly summary", prompt="x", schedule="0 9 * * 1", timezone="UTC", now=now))
    outbox.put(conn, CHAT, Content(text="Your tulips have arrived."), now - HOUR, dedup_key="late", session_key="")
    outbox.give_up(conn, 1, "the person has blocked the bot")
    report = {
        "parts": {
            "database": {"state": "available", "words": ""},
            "telegram": {"state": "connected", "words": "@ann_hermes_bot", "last_success": None},
        },
        "model": "some/model",
    }
    row = WorkerRow(
        name="w", owner="", host="home", pid=os.getpid(), version="0.1.0", role="all", state=WorkerState.READY,
        started_at=now - DAY, last_seen=now, report=report,
    )  # fmt: skip
    workers.report(conn, row)


async def complaints_of(visitor: BrowserVisitor) -> Sequence[str]:
    found = await Axe().run(visitor.page)
    return [f"{each['id']}: {node['html']}" for each in found.response["violations"] for node in each["nodes"]]


async def look(tab: Page, *, hidden: bool) -> None:
    """Playwright shows every tab as the one that is looked at."""
    await tab.evaluate(
        f"Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {str(hidden).lower()}}})"
    )
    await tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_pages_are_readable_for_everybody(browser: Browser, home: Path, scheme: Any) -> None:
    async with gateway(home, [ASK]) as gw, visiting(browser, gw, scheme=scheme) as visitor:
        await gw.database.write(furnish, gw.app.clock())
        await visitor.open("/ui/")
        await visitor.page.get_by_label("Say something").fill("Which colour shall I paint the fence?")
        await visitor.page.get_by_role("button", name="Send").click()
        await expect(visitor.page.get_by_role("button", name="blue")).to_be_visible()
        talk = visitor.page.url.removeprefix(gw.url)
        run = (await gw.database.read(runs.latest, 1))[0]
        for path in (*(f"/ui/{page}" for page in PAGES), talk, f"/ui/runs/{run.id}"):
            await visitor.page.set_viewport_size({"width": 1100, "height": 800})
            await visitor.open(path)
            assert await complaints_of(visitor) == [], path
            if PICTURES and path.removeprefix("/ui/") in PAGES:
                name = f"dashboard-{path.removeprefix('/ui/') or 'now'}-{scheme}.png"
                await visitor.page.screenshot(path=Path(PICTURES) / name)
            await visitor.page.set_viewport_size({"width": 320, "height": 640})
            width = await visitor.page.evaluate("document.documentElement.scrollWidth")
            assert width <= 320, path
        assert visitor.complaints == []


async def test_a_day_with_it(browser: Browser, home: Path) -> None:
    goes_on = asyncio.Event()
    words = iter([False])

    async def between() -> None:
        if next(words, True):
            await goes_on.wait()

    growing = Reply(text="Plant them in October", chunks=("Plant them ", "in October"), between=between)
    script = [growing, ASK, "Blue it is.", APPROVAL, "It is there."]
    async with gateway(home, script) as gw, visiting(browser, gw) as visitor:
        give_tools(gw.app, Toolbox.of(["process", "ask_human"]).tools)
        await gw.database.write(furnish, gw.app.clock())
        page = visitor.page

        async def say(text: str) -> None:
            await page.get_by_label("Say something").fill(text)
            await page.get_by_role("button", name="Send").click()

        # A conversation begins, and its answer grows.
        await visitor.open("/ui/")
        await page.get_by_label("Files").set_input_files(
            {"name": "list.txt", "mimeType": "text/plain", "buffer": b"tulips"}
        )
        await say("When do I plant these?")
        await expect(page.locator("#growing")).to_contain_text("Plant them")
        goes_on.set()
        await expect(page.locator("#transcript")).to_contain_text("Plant them in October")
        await expect(page.locator("#growing")).to_be_empty()
        await expect(page.locator("#transcript")).to_contain_text("inbox/list.txt")
        talk = page.url
        # What it asks is answered in place, from the first page; the run finishes live on another tab.
        await say("Choose a colour")
        await expect(page.locator("#question")).to_contain_text("Which colour?")
        other = await visitor.context.new_page()
        visitor.watch(other)
        await other.goto(gw.url + "/ui/")
        await other.get_by_role("button", name="blue").click()
        await expect(other.get_by_text("Which colour?")).to_have_count(0)
        await expect(page.locator("#transcript")).to_contain_text("Blue it is.")
        # A command is approved, while its run is watched.
        await say("Make a file")
        await expect(page.locator("#question")).to_contain_text("touch garden.txt")
        run = (await gw.database.read(runs.latest, 1, status=RunStatus.WAITING))[0]
        await other.goto(f"{gw.url}/ui/runs/{run.id}")
        await expect(other.locator("#timeline")).to_contain_text("process")
        await page.locator("#question").get_by_role("button", name="Approve").click()
        await expect(other.locator("#timeline")).to_contain_text("It is there.")
        await expect(other.locator("#timeline")).to_contain_text("approved by ann")
        assert list(home.rglob("garden.txt"))
        # An old conversation is found, read and opened again.
        await visitor.open("/ui/sessions")
        await page.get_by_label("Search").fill("lake")
        await page.get_by_role("button", name="Find").click()
        await page.get_by_role("link", name="Weekend").click()
        await expect(page.locator("#transcript")).to_contain_text("At the lake, as last time.")
        await page.get_by_text("About this session").click()
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator("#state")).not_to_contain_text("Ended")
        # A job is paused, a note forgotten, an undelivered message sent again.
        await visitor.open("/ui/time")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator("#jobs")).to_contain_text("paused")
        await visitor.open("/ui/memory")
        await page.locator("li", has_text="Prefers tea").get_by_role("button", name="Forget").click()
        await expect(page.get_by_text("Prefers tea")).to_have_count(0)
        await expect(page.locator("del")).to_have_text("Buys tulips at the market")
        await visitor.open("/ui/platforms")
        await page.get_by_role("button", name="Send again").click()
        await expect(page.get_by_text("the person has blocked the bot")).to_have_count(0)
        # Nine tabs: a browser has six connections to one host, so those that nobody looks at hold none.
        tabs = [page, other, *[await visitor.context.new_page() for _ in range(7)]]
        for tab in tabs:
            await tab.goto(talk)
            await look(tab, hidden=True)
        await gw.database.write(store.rename, talk.rpartition("/")[2], "Tulips and paint")
        for tab in tabs:
            await look(tab, hidden=False)
            await expect(tab.locator("#heading")).to_have_text("Tulips and paint")
            await look(tab, hidden=True)
        assert visitor.complaints == []


async def test_by_keyboard_alone(browser: Browser, home: Path) -> None:
    async with gateway(home, [ASK, "Blue it is."]) as gw, visiting(browser, gw) as visitor:
        keyboard, page = visitor.page.keyboard, visitor.page

        async def tab_to(name: str) -> None:
            for _ in range(40):
                await keyboard.press("Tab")
                at = "document.activeElement.innerText || document.activeElement.labels?.[0]?.innerText || ''"
                if (await page.evaluate(at)).strip().startswith(name):
                    return
            raise AssertionError(f"{name} is not reached")

        await tab_to("Skip to the content")
        await keyboard.press("Enter")
        await tab_to("Say something")
        await keyboard.type("Choose a colour")
        await keyboard.press("Control+Enter")
        await expect(page.get_by_role("button", name="blue")).to_be_visible()
        await page.evaluate("document.activeElement.blur()")
        await tab_to("blue")
        await keyboard.press("Enter")
        await expect(page.locator("#transcript")).to_contain_text("Blue it is.")


async def test_without_javascript(browser: Browser, home: Path) -> None:
    async with (
        gateway(home, [ASK, "Blue it is."]) as gw,
        visiting(browser, gw, sign_in=False, java_script_enabled=False) as visitor,
    ):
        page = visitor.page
        await visitor.open("/ui/login")
        await page.get_by_label("Code").fill(await gw.database.write(sign_ins.new_link, "cli:ann", gw.app.clock()))
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_label("Say something").fill("Choose a colour")
        async with page.expect_navigation():  # a form: the page comes anew, and cannot be loaded again meanwhile
            await page.get_by_role("button", name="Send").click()
        async with asyncio.timeout(20):
            while not await gw.database.read(runs.latest, 1, status=RunStatus.WAITING):
                await asyncio.sleep(0.01)
        await page.reload()
        async with page.expect_navigation():
            await page.get_by_role("button", name="blue").click()
        async with asyncio.timeout(20):
            while not await gw.database.read(runs.latest, 1, status=RunStatus.COMPLETED):
                await asyncio.sleep(0.01)
        await page.reload()
        await expect(page.locator("#transcript")).to_contain_text("Blue it is.")
        for name in ("Sessions", "Runs", "Time", "Memory", "Platforms"):
            await page.get_by_role("link", name=name, exact=True).click()
            await expect(page.locator("h1")).to_have_text(name)


async def test_what_was_typed_stays_where_it_cannot_be_sent(browser: Browser, home: Path) -> None:
    async with gateway(home, ["Hello."]) as gw, visiting(browser, gw) as visitor:
        box = visitor.page.get_by_label("Say something")
        await box.fill("hello")
        await visitor.page.get_by_role("button", name="Send").click()
        await expect(visitor.page.locator("#transcript")).to_contain_text("Hello.")
        await gw.database.write(sign_ins.revoke_all, "cli:ann", gw.app.clock())
        await box.fill("a long letter")
        await visitor.page.get_by_role("button", name="Send").click()
        await expect(visitor.page.get_by_role("alert")).to_contain_text("hermes dashboard")
        await expect(box).to_have_value("a long letter")
