"""An endpoint for embeddings at the wire: it refuses what a real one refuses, and its vectors are those that a test gives.

async with EmbeddingsServer(lambda text: [1.0, len(text)]) as server:
    Embedder(ModelSettings(base_url=server.url, name="fake-embedder"))
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Self

from aiohttp import web

MODEL = "fake-embedder"
MOST_INPUTS = 2_048


class EmbeddingsServer:
    """`embeds`: the vector of a text. `asked`: the texts of each call. While `refuses` is a status, every call fails with it; while
    `hangs`, none is answered. `index`: how the place of a text is written."""

    def __init__(self, embeds: Callable[[str], Sequence[float]], *, api_key: str = "") -> None:
        self._embeds = embeds
        self._api_key = api_key
        self._stopping = asyncio.Event()
        self.asked: list[list[str]] = []
        self.refuses = 0
        self.hangs = False
        self.index: Callable[[int], object] = int

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/embeddings", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def _answer(self, request: web.Request) -> web.Response:
        if self._api_key and request.headers.get("Authorization") != f"Bearer {self._api_key}":
            return _error(401, "Incorrect API key provided.")
        body: dict[str, Any] = json.loads(await request.read())
        texts = [body["input"]] if isinstance(body.get("input"), str) else body.get("input")
        self.asked.append(texts if isinstance(texts, list) else [])
        if self.hangs:
            await self._stopping.wait()
        if self.refuses:
            return _error(self.refuses, "The server had an error while processing your request.")
        if not isinstance(texts, list) or not 0 < len(texts) <= MOST_INPUTS or not all(texts):
            return _error(400, "'$.input' is invalid.")
        if not body.get("model"):
            return _error(400, "you must provide a model parameter")
        rows = [
            {"object": "embedding", "index": self.index(place), "embedding": list(self._embeds(text))}
            for place, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response({"object": "list", "data": rows, "model": body["model"], "usage": usage})


def _error(status: int, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return web.json_response({"error": error}, status=status)
