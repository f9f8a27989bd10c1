"""A person who is signed in to the page, as a plain HTTP client: what works here works without JavaScript."""

import re
from html import unescape
from typing import Any

import aiohttp

from gateway.dashboard.server import COOKIE
from sessions import sign_ins
from tests.integration.api.serving import Gateway


class Visitor:
    def __init__(self, gw: Gateway, cookie: str = "") -> None:
        self.gw = gw
        self.cookie = cookie
        self.csrf = ""

    async def get(self, path: str, **headers: str) -> tuple[int, str, Any]:
        return await self._send("GET", path, None, headers)

    async def head(self, path: str) -> tuple[int, str, Any]:
        return await self._send("HEAD", path, None, {})

    async def page(self, path: str) -> str:
        status, text, _ = await self.get(path)
        assert status == 200, text
        return text

    async def post(self, path: str, **fields: Any) -> tuple[int, str, Any]:
        """As a browser sends a form of ours."""
        if not self.csrf and self.cookie:
            found = re.search(r'name="csrf" value="([0-9a-f]+)"', await self.page("/ui/"))
            assert found is not None
            self.csrf = found[1]
        return await self.send(path, {"csrf": self.csrf, **fields}, **{"Sec-Fetch-Site": "same-origin"})

    async def send(self, path: str, data: Any, **headers: str) -> tuple[int, str, Any]:
        return await self._send("POST", path, data, headers)

    async def _send(self, method: str, path: str, data: Any, headers: dict[str, str]) -> tuple[int, str, Any]:
        cookies = {"Cookie": f"{COOKIE}={self.cookie}"} if self.cookie else {}
        sent = self.gw.http.request(
            method, self.gw.url + path, data=data, headers={**cookies, **headers}, allow_redirects=False
        )
        async with sent as answer:
            return answer.status, await answer.text(), answer.headers

    async def sign_in(self, secret: str) -> int:
        status, _, headers = await self.send("/ui/login", {"secret": secret}, Origin=self.gw.url)
        if status == 303:
            self.cookie = re.search(rf"{COOKIE}=([\w-]+)", headers["Set-Cookie"])[1]  # type: ignore[index]
        return status


async def signed_in(gw: Gateway, who: str = "cli:ann") -> Visitor:
    visitor = Visitor(gw)
    assert await visitor.sign_in(await gw.database.write(sign_ins.new_link, who, gw.app.clock())) == 303
    return visitor


def words(html: str) -> str:
    """What somebody reads."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def multipart(*fields: tuple[str, str], files: tuple[tuple[str, str, bytes], ...] = ()) -> aiohttp.FormData:
    form = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields:
        form.add_field(name, value)
    for name, mime, data in files:
        form.add_field("files", data, filename=name, content_type=mime)
    return form
