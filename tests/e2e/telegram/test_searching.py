"""`web_search` is there as soon as the configuration names an engine, without a restart."""

from pathlib import Path

from aiohttp import web

from gateway.config.reading import load
from tests.e2e.telegram.daemon import answering
from tests.fakes.model_replies import call, calls
from tests.unit.gateway.attachments.test_safe_fetch import site


async def test_a_reload_brings_the_search_engine(home: Path) -> None:
    search = calls(call("web_search", {"query": "tea"}))
    hits = {"results": [{"url": "https://tea.example/", "title": "All about tea"}]}
    async with (
        site(lambda _: web.json_response(hits)) as (port, asked),
        answering(home, "hi", search, "found") as (s, model),
    ):
        assert await s.answer_to("hello") == "hi"
        assert "web_search" not in str(model.calls[0].body["tools"])
        engine = {"HERMES_WEB__SEARCH": "searxng", "HERMES_WEB__URL": f"http://127.0.0.1:{port}"}
        await s.serving.reload(load(home, engine))
        assert await s.answer_to("search for tea") == "found"
        assert asked[0].query["q"] == "tea"
        assert "All about tea" in str(model.calls[-1].messages[-1])
