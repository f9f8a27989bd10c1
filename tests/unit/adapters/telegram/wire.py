"""The adapter between the fake at the wire and a test."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from adapters.telegram.adapter import Telegram
from adapters.telegram.config import TelegramConfig
from sessions.keys import Address, ChatKind, Platform
from sessions.messages import Inbound, Outbound, Receipt
from tests.fakes.telegram_server import TelegramServer
from tests.fakes.telegram_world import TelegramChat


class TelegramGateway:
    """The other side of the adapter: keeps what comes in, sends what it is told to."""

    def __init__(self, server: TelegramServer) -> None:
        self.server = server
        self.now = 1000.0
        self.pauses: list[float] = []
        self.inbox: list[Inbound] = []
        self.refuse: Exception | None = None
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.adapter = self.new_adapter()

    def new_adapter(self, **config: str) -> Telegram:
        settings = TelegramConfig(**{"token": self.server.token, "api_base": self.server.url, **config})  # type: ignore[arg-type]
        return Telegram(settings, clock=lambda: self.now, sleep=self.sleep, poll_seconds=2)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    async def deliver(self, inbound: Inbound) -> None:
        if self.refuse:
            raise self.refuse
        self.inbox.append(inbound)
        self._news.set()

    def start(self) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self.adapter.run(self.deliver))
        return self._task

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task

    async def until(self, ready: Callable[[], object]) -> None:
        """Looks whenever something happened, and often enough for what happens on the server alone."""
        async with asyncio.timeout(30):
            while not ready():
                self._news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), 0.01)

    async def received(self, count: int = 1) -> Inbound:
        await self.until(lambda: len(self.inbox) >= count)
        return self.inbox[-1]

    async def send(self, address: Address, text: str = "", **fields) -> list[Receipt]:
        pieces = self.adapter.render(Outbound(address=address, text=text, **fields))
        return [await self.adapter.send(address, piece) for piece in pieces]


def address_of(chat: TelegramChat, topic: int | None = None) -> Address:
    kind = {"private": ChatKind.DM, "channel": ChatKind.CHANNEL}.get(chat.type, ChatKind.GROUP)
    return Address(platform=Platform.TELEGRAM, kind=kind, chat_id=str(chat.id), thread_id=str(topic) if topic else None)


def outbound(address: Address, text: str, **fields) -> Outbound:
    return Outbound(address=address, text=text, **fields)
