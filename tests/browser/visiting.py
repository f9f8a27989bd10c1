"""A person in front of the page: a gateway in this process, and a browser that is signed in to it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from playwright.async_api import Browser, BrowserContext, Page

from sessions import sign_ins
from tests.integration.api.serving import Gateway


@dataclass
class BrowserVisitor:
    """`complaints`: what the console and the page have said that they should not."""

    gateway: Gateway
    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)

    async def open(self, path: str) -> None:
        await self.page.goto(self.gateway.url + path)

    def watch(self, page: Page) -> None:
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in {"error", "warning"} else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))


@asynccontextmanager
async def visiting(
    browser: Browser,
    gateway: Gateway,
    *,
    scheme: Literal["light", "dark"] = "light",
    sign_in: bool = True,
    **more: Any,
) -> AsyncGenerator[BrowserVisitor]:
    context = await browser.new_context(**{"color_scheme": scheme, "viewport": {"width": 1100, "height": 900}, **more})
    page = await context.new_page()
    visitor = BrowserVisitor(gateway=gateway, context=context, page=page)
    visitor.watch(page)
    page.set_default_timeout(20_000)
    if sign_in:
        await visitor.open(
            f"/ui/login#{await gateway.database.write(sign_ins.new_link, 'cli:ann', gateway.app.clock())}"
        )
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url("**/ui/")
    yield visitor
    await context.close()
