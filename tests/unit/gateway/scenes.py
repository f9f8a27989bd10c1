"""A chat that writes down what is shown, and time that passes when told."""

import asyncio
from collections.abc import Awaitable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from adapters.base import Deliver, Pace, ShowsDrafts
from gateway.chats.presence import Presence
from gateway.chats.sending import RateLimiter
from gateway.context import App
from gateway.runs.live import LiveEvent, LiveEvents
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Inbound, Outbound, Piece, Receipt
from sessions.records import Route, Run, RunKind, RunStatus

DM = Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7")
GROUP = Address(platform=Platform.TELEGRAM, kind=ChatKind.GROUP, chat_id="-1")


class Time:
    """Passes when told. Whoever sleeps wakes when it is time, and does what it has to do before any more time passes."""

    def __init__(self) -> None:
        self.now = 100.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, future))
        await future

    async def passes(self, seconds: float = 0.0) -> None:
        end = self.now + seconds
        await settle()
        while due := [sleeper for sleeper in self._sleepers if sleeper[0] <= end and not sleeper[1].done()]:
            first = min(due, key=lambda sleeper: sleeper[0])
            self._sleepers.remove(first)
            self.now = max(self.now, first[0])
            first[1].set_result(None)
            await settle()
        self.now = end


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Chat(ShowsDrafts):
    """A platform that writes down what is shown, and when."""

    platform = Platform.TELEGRAM
    pace = Pace(per_second=30, dm=1, group=1, edit=1.5, group_per_minute=20)
    typing_every = 4.0
    draft_renew_every = 20.0

    def __init__(self, time: Time) -> None:
        self._time = time
        self.seen: list[tuple[float, str]] = []
        self.trouble: list[Exception] = []
        self.begun: list[tuple[str | None, bool]] = []

    async def _see(self, what: str) -> None:
        await asyncio.sleep(0)
        self.seen.append((round(self._time.now - 100, 2), what))
        if self.trouble:
            raise self.trouble.pop(0)

    async def typing(self, address: Address) -> None:
        await self._see("typing")

    async def draft(
        self,
        address: Address,
        draft_id: str | None,
        text: str,
        *,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        await self._see(text)
        if draft_id is None:
            self.begun.append((reply_to, silent))
        return None if address.kind is ChatKind.DM else draft_id or "99"

    async def erase_draft(self, address: Address, draft_id: str) -> None:
        await self._see(f"erased {draft_id}")

    async def react(self, address: Address, message_id: str, emoji: str | None) -> None:
        await self._see(f"{message_id} {emoji or 'off'}")

    async def finish_draft(self, address: Address, draft_id: str, piece: Piece) -> Receipt | None:
        raise NotImplementedError

    async def run(self, deliver: Deliver) -> None:
        raise NotImplementedError

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        raise NotImplementedError

    async def send(self, address: Address, piece: Piece) -> Receipt:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def asked(address: Address) -> str | None:
    """The message that the run answers."""
    route = a_run(address).route
    return None if route is None else route.reply_to


class NoDatabase:
    """Nothing is stored here."""

    async def write(self, *_: Any) -> None: ...


class RunScene:
    def __init__(self, address: Address) -> None:
        self.time = Time()
        self.chat = Chat(self.time)
        self.pacer = RateLimiter(self.chat.pace, monotonic=self.time, sleep=self.time.sleep)
        self.live = LiveEvents()
        app = cast(App, SimpleNamespace(live=self.live, database=NoDatabase()))
        self.presence = Presence(app, self.chat, self.pacer, monotonic=self.time, sleep=self.time.sleep)
        self.address = address

    def begins(self) -> None:
        self.live.publish(LiveEvent("r", "begun", run=a_run(self.address)))

    def says(self, text: str) -> None:
        self.live.publish(LiveEvent("r", "token", text))

    def ends(self) -> None:
        self.live.publish(LiveEvent("r", "ended"))

    async def marks_read(self, message_id: str) -> None:
        inbound = Inbound(dedup_key="k", address=self.address, sender=Sender(id="7"), message_id=message_id)
        self.presence.mark_read(inbound, "r")

    async def delivers(self) -> str | None:
        """The answer, as the delivery sends it. Returns the preview that it took the place of."""
        await self.waits_for(self.pacer.wait_for_turn(self.address))
        draft = await self.presence.take_preview("r", asked(self.address))
        await self.chat._see("answer")  # the double's own
        if draft is not None:
            self.presence.mark_final("r")
        await self.waits_for(self.presence.clear("r"))
        return draft

    async def waits_for(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        await settle()
        while not task.done():
            await self.time.passes(0.05)

    @property
    def seen(self) -> list[tuple[float, str]]:
        return self.chat.seen


def a_run(address: Address) -> Run:
    known: dict[str, Any] = dict.fromkeys(Run.__slots__)
    known |= {
        "id": "r",
        "kind": RunKind.CHAT,
        "status": RunStatus.RUNNING,
        "route": Route(address=address),
        "noted": (),
    }
    return Run(**known)
