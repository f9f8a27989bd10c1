"""Which address is answered by which page or form."""

from aiohttp import web

from gateway.dashboard.forms import FORMS
from gateway.dashboard.live import follow
from gateway.dashboard.pages import PAGES, DashboardPage
from gateway.dashboard.rendering import render
from gateway.dashboard.server import Answer, Visit
from sessions.search import message_index


def router() -> web.UrlDispatcher:
    found = web.UrlDispatcher()
    for page in PAGES:
        for method in ("GET", "HEAD"):
            found.add_route(method, page.path, _answer(page))  # type: ignore[arg-type]  # it is given a visit instead of the request
    for method, path, answer in FORMS:
        found.add_route(method, path, answer)  # type: ignore[arg-type]
    return found


def _answer(page: DashboardPage) -> Answer:
    async def answer(visit: Visit) -> web.StreamResponse:
        if "text/event-stream" in visit.request.headers.get("Accept", ""):
            return await follow(visit, page)
        if visit.asked("q"):  # what was said a second ago is to be found, too
            await visit.app.database.write(message_index.index_some)
        # Read and rendered off the event loop: a long transcript takes longer than others may wait.
        html = await visit.app.database.read(
            lambda conn: render(page.template, here=visit.request.path, growing="", **page.values(conn, visit))
        )
        return web.Response(text=html, content_type="text/html")

    return answer
