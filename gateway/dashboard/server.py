"""What every request below /ui passes: the host, the signed-in person, the origin of a form.

Bearer keys open nothing here, and the cookie opens nothing elsewhere.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from gateway.api.http.callers import from_this_machine, network_of
from gateway.api.http.connection import connection_of
from gateway.api.http.errors import ApiError
from gateway.api.http.server import error_response, record_refusal
from gateway.api.http.server_state import ServerState
from gateway.chats.access import day_limit, limit_of_everybody
from gateway.context import App
from sessions import sign_ins
from sessions.errors import DayLimitReached, NotFound
from sessions.spending import NO_LIMIT, DayLimit

if TYPE_CHECKING:
    from gateway.dashboard.doctor import Findings

COOKIE = "hermes_ui"
ROOT = "/ui"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`, with which our own forms would send `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC = {"style.css": "text/css", "live.js": "text/javascript"}
_SIGN_IN = "Run `hermes dashboard` on the machine of the gateway; it prints a link with which you sign in."


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request of a person who is signed in. `account`: how the audit and the usage name them. `limit`: of each day. `path`: the parts of the
    address that are names. `secret`: that of the cookie."""

    dashboard: "Dashboard"
    request: web.Request
    account: str
    limit: DayLimit
    secret: str
    path: Mapping[str, str]

    @property
    def who(self) -> str:
        """The person's name, for others to read."""
        return self.account.removeprefix("cli:")

    @property
    def app(self) -> App:
        return self.dashboard.server.app

    @property
    def csrf(self) -> str:
        """The value that every form of this sign-in holds, and that no other site knows."""
        return hmac.new(self.secret.encode(), b"form", hashlib.sha256).hexdigest()[:32]

    def asked(self, name: str) -> str:
        """Returns a field of the query; empty when it is missing."""
        return self.request.query.get(name, "").strip()


Answer = Callable[[Visit], Awaitable[web.StreamResponse]]


class Dashboard:
    """Answers what comes below /ui. What it shows with is loaded when the first person comes. `tabs`: call one, and its page is read again."""

    def __init__(self, server: ServerState) -> None:
        self.server = server
        self._router: web.UrlDispatcher | None = None
        self.findings: Findings | None = None
        self.tabs: set[Callable[[], None]] = set()

    def read_again(self) -> None:
        """Makes every open page look for what is new, where no commit tells it."""
        for read_again in tuple(self.tabs):
            read_again()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers one request. Never raises but for a connection that is lost."""
        try:
            response = await self._answer(request)
        except ConnectionError:  # nobody is there to be answered
            raise
        except Exception as error:  # noqa: BLE001  # the edge: whatever it is, the person gets a page and the daemon goes on
            if isinstance(error, DayLimitReached):
                await record_refusal(self.server.app, error, error.who)
            response = self._refusal(error_response(error, request), request)
        if not response.prepared:
            response.headers.update({**HEADERS, **response.headers})
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            self.server.host_check.check(request)
        except ApiError as error:
            if error.code != "host_not_allowed":
                raise
            raise ApiError(421, error.message, code=error.code) from None
        match (request.method, request.path.removeprefix(ROOT)):
            case ("GET" | "HEAD", ""):
                return web.Response(status=308, headers={"Location": f"{ROOT}/"})
            case ("GET" | "HEAD", "/login"):
                return self._page("login.html", request)
            case ("POST", "/login"):
                return await self._sign_in(request)
            case ("GET" | "HEAD", path) if path.removeprefix("/static/") in _STATIC:
                name = path.removeprefix("/static/")
                text = (files("gateway.dashboard") / "static" / name).read_text(encoding="utf-8")
                return web.Response(text=text, content_type=_STATIC[name])
            case _:
                return await self._routed(request)

    async def _routed(self, request: web.Request) -> web.StreamResponse:
        cookie = request.cookies.get(COOKIE, "")
        now = self.server.app.clock()
        found = await self.server.app.database.read(sign_ins.signed_in, cookie, now) if cookie else None
        if found is None:
            raise ApiError(401, _SIGN_IN, code="not_signed_in")
        who, is_to_prolong = found
        limit = self.require_admin(who)
        if is_to_prolong:
            await self.server.app.database.write(sign_ins.prolong, cookie, now)
        if not connection_of(request).admit(f"{ROOT}:{who}"):
            raise ApiError(429, "Too many pages of yours are open. Close some.", code="too_many_connections")
        if self._router is None:
            from gateway.dashboard.routes import router

            self._router = router()
        match = await self._router.resolve(request)
        if match.http_exception is not None:
            raise match.http_exception
        if request.method not in {hdrs.METH_GET, hdrs.METH_HEAD}:
            require_own_origin(request)
        visit = Visit(dashboard=self, request=request, account=who, limit=limit, secret=cookie, path=match)
        answer: Any = match.handler
        return await answer(visit)

    def require_admin(self, who: str) -> DayLimit:
        """Returns what this person may use in a day. Raises ApiError when it is one of the configuration who is no admin (any more)."""
        if ":" in who:  # whoever has a shell on the machine of the gateway operates it
            return NO_LIMIT
        config = self.server.app.config
        person = next((each for each in config.people if each.name == who), None)
        if person is None or "admin" not in person.scopes:
            raise ApiError(401, f"{who} is no admin any more. The section people says who is.", code="not_signed_in")
        return day_limit(person, limit_of_everybody(config))

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        require_own_origin(request)
        server = self.server
        # Whether a proxy with TLS stands before us: it passes the name of the public address on.
        public = urlsplit(self.server.app.config.api.public_url)
        is_encrypted = public.scheme == "https" and request.headers.get(hdrs.HOST, "") == public.netloc
        if not (is_encrypted or from_this_machine(request)):
            where = "Signing in from another machine needs TLS. Set api.public_url to an https address behind a proxy,"
            tunnel = (
                f"or forward the port: ssh -L {server.app.config.api.port}:127.0.0.1:{server.app.config.api.port} …"
            )
            raise ApiError(403, f"{where} {tunnel}", code="not_encrypted")
        network = network_of(request.remote or "")
        if server.wrong_keys.is_throttled(network):
            raise ApiError(429, "Too many wrong links. Wait a minute.", code="too_many_wrong_keys")
        sent = (await request.post()).get("secret", "")
        try:
            cookie = await server.app.database.write(sign_ins.redeem, str(sent)[:100], server.app.clock())
        except NotFound as error:
            server.wrong_keys.take(network)
            raise ApiError(401, str(error), code="link_used") from None
        response = web.Response(status=303, headers={"Location": f"{ROOT}/"})
        response.set_cookie(
            COOKIE,
            cookie,
            path=ROOT,
            max_age=sign_ins.LONGEST_MS // 1000,
            httponly=True,
            samesite="Strict",
            secure=is_encrypted,
        )
        return response

    def _page(self, template: str, request: web.Request, *, status: int = 200, **values: object) -> web.Response:
        from gateway.dashboard.rendering import render

        return web.Response(status=status, text=render(template, here=request.path, **values), content_type="text/html")

    def _refusal(self, error: ApiError, request: web.Request) -> web.Response:
        response = self._page("refused.html", request, status=error.status, message=error.message, code=error.code)
        response.headers.update(error.headers)
        return response


def require_own_origin(request: web.Request) -> None:
    """Raises ApiError when the form is not from a page of ours."""
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get(hdrs.ORIGIN)
    if site is not None:
        is_ours = site == "same-origin"
    elif origin is not None:
        is_ours = urlsplit(origin).netloc == request.headers.get(hdrs.HOST)
    else:  # an old browser, or none: only the value in the form tells, which `forms.py` checks always
        is_ours = True
    if not is_ours:
        raise ApiError(403, "This form is not from a page of the gateway.", code="origin_not_allowed")
