"""What all fakes of platforms are made of: a server on loopback, and things that go wrong on the way."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self, cast

from aiohttp import web

from adapters.testing.people import FakePerson, Room, Said

Json = dict[str, Any]
LARGEST_BODY = 60_000_000
_IDS = {"id", "message_id", "ok", "ts"}


@dataclass(slots=True, kw_only=True)
class WireFault:
    """Calls of this name go wrong `times` times. `drop` cuts the connection "before" or "after" the call took effect; `wait` holds
    the call, or with `drop="after"` its answer, until it is set; with `poison` the call takes effect and its answer is `poisoned`; otherwise
    the call is answered with `status`, `body` and `headers`."""

    name: str
    times: int = 1
    status: int = 500
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    drop: str = ""
    wait: asyncio.Event | None = None
    poison: bool = False


def poisoned(answer: Any) -> Any:
    """Returns the answer as a client cannot parse it: its ids are the same, every other value is of another kind, and one is new."""
    match answer:
        case dict():
            found = cast(Json, answer)
            odd = {key: value if key in _IDS else poisoned(value) for key, value in found.items()}
            return {**odd, "not_yet_invented": [{"a": 1}]}
        case list():
            return [poisoned(one) for one in cast(list[Any], answer)]
        case str():
            return {"not": ["text"]}
        case _:
            return "not what it was"


class WireServer:
    """A platform's server on loopback, which `async with` starts. `url`: its address. `bot`: the account that the tested program uses.
    `violations`: one sentence for each call that broke a rule of the platform."""

    bot: FakePerson

    def __init__(self) -> None:
        self.url = ""
        self.faults: list[WireFault] = []
        self.violations: list[str] = []
        self.calls: list[tuple[str, Json]] = []
        self._runner: web.AppRunner | None = None

    def routes(self, app: web.Application) -> None:
        """Adds what the platform answers to."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=LARGEST_BODY)
        self.routes(app)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def taps(self, room: Room, person: FakePerson, message: Said, label: str) -> object:
        """The person taps this button of the bot's message."""
        raise NotImplementedError

    def tap(self, room: Room, person: FakePerson, message: Said, label: str) -> object:
        """The same under a name that all fakes have."""
        return self.taps(room, person, message, label)

    def visible(self, room: Room) -> list[Said]:
        """What people see in this chat."""
        return list(room.visible())

    def is_bots(self, said: Said) -> bool:
        return said.author is self.bot

    def fail(self, name: str, *, times: int = 1, **how: Any) -> WireFault:
        """The next calls of this name ("*": of any) go wrong. See WireFault."""
        self.faults.append(WireFault(name=name, times=times, **how))
        return self.faults[-1]

    def called(self, name: str) -> list[Json]:
        return [parameters for called, parameters in self.calls if called == name]

    async def until(self, ready: Callable[[], object], timeout: float = 30) -> None:
        async with asyncio.timeout(timeout):
            while not ready():  # noqa: ASYNC110  # what it waits for may be anything
                await asyncio.sleep(0.005)

    async def answer(
        self, request: web.Request, name: str, act: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """What `act` makes of the call, or what a fault does."""
        fault = next((one for one in self.faults if one.name in {name, "*"} and one.times > 0), None)
        if fault is None:
            return await act()
        fault.times -= 1
        if fault.poison:
            taken = await act()
            if taken.status >= 300:
                return taken
            raw = taken.body if isinstance(taken, web.Response) else None
            odd = poisoned(json.loads(raw) if isinstance(raw, bytes) and raw else {})
            return web.Response(body=json.dumps(odd).encode(), headers={"Content-Type": "application/json"})
        if fault.drop == "before":
            return hang_up(request)
        if fault.drop:
            await act()
            if fault.wait is not None:
                await fault.wait.wait()
            return hang_up(request)
        if fault.wait is not None:
            await fault.wait.wait()
            return await act()
        if isinstance(fault.body, str):
            return web.Response(status=fault.status, text=fault.body, headers=fault.headers)
        headers = {"Content-Type": "application/json", **fault.headers}
        return web.Response(body=json.dumps(fault.body or {}).encode(), status=fault.status, headers=headers)


def hang_up(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.close()
    return web.Response()
