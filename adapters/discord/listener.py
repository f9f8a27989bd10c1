"""The connection to Discord's gateway: events go into a queue, in their order, and are delivered one after the other."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import discord
import structlog

from adapters.discord.errors import translated
from adapters.discord.rest import new_client

log = structlog.get_logger(__name__)

Work = Callable[[], Awaitable[None]]


def wanted_intents() -> discord.Intents:
    return discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)


def skip_unreadable(client: discord.Client, skipped: Callable[[str, Any], None]) -> None:
    """Makes the library leave out an event that it cannot read; by itself it would end the connection. `skipped` is called with the name
    and the data of each.
    """
    parsers: dict[str, Callable[[Any], None]] = client._connection.parsers  # pyright: ignore[reportPrivateUsage]

    def guarded(name: str, parse: Callable[[Any], None]) -> Callable[[Any], None]:
        def parse_or_skip(data: Any) -> None:
            try:
                parse(data)
            except Exception as error:  # noqa: BLE001  # whatever is wrong with one event, the next ones are to be heard
                log.warning("discord.event_skipped", event_name=name, reason=type(error).__name__)
                skipped(name, data)

        return parse_or_skip

    parsers.update({name: guarded(name, parse) for name, parse in parsers.items()})


def stop_waiting_for_guilds(client: discord.Client) -> None:
    """Cancels the library's wait for guilds, which goes on for up to two seconds and then tells a client that is closed that it is ready."""
    waiting = cast("asyncio.Task[None] | None", client._connection._ready_task)  # pyright: ignore[reportPrivateUsage]
    if waiting is not None:
        waiting.cancel()


class Listener:
    """One connection, as long as it lasts. The library resumes it by itself; after an invalid session it begins anew (`ready`)."""

    def __init__(self, token: str, *, alive: Callable[[], None]) -> None:
        self.client = new_client(wanted_intents())
        skip_unreadable(self.client, self._skipped)
        self.queue: asyncio.Queue[Work] = asyncio.Queue()
        self.ready = asyncio.Event()
        self._token = token
        self._alive = alive
        self._take_unreadable: Callable[[Any], Awaitable[None]] | None = None

    def on_unreadable_message(self, handle: Callable[[Any], Awaitable[None]]) -> None:
        """Calls `handle` with the data of each message that the library cannot read, in order with the others."""
        self._take_unreadable = handle

    def _skipped(self, name: str, data: Any) -> None:
        handle = self._take_unreadable
        if name == "MESSAGE_CREATE" and handle is not None:
            self.queue.put_nowait(lambda: handle(data))

    def on(self, name: str, handle: Callable[..., Awaitable[None]]) -> None:
        """Calls `handle` with each event of this kind, in order."""

        async def event(*what: Any) -> None:
            if name == "connect":  # a new session, whose guilds are still to come
                self.ready.clear()
            # The library starts a task for each event; only a queue keeps their order.
            self.queue.put_nowait(lambda: handle(*what))

        self._listen(name, event)

    def _listen(self, name: str, event: Callable[..., Awaitable[None]]) -> None:
        setattr(self.client, f"on_{name}", event)

    async def run(self) -> None:
        """Receives until cancelled. Raises DeliveryError when the connection cannot go on, and whatever a handler raises."""

        async def alive(*_: object) -> None:
            self._alive()

        async def ready() -> None:
            self.ready.set()

        self._listen("socket_event_type", alive)
        self._listen("ready", ready)
        try:
            with translated():
                await self.client.login(self._token)
            connected = asyncio.ensure_future(self.client.connect())
            delivering = asyncio.ensure_future(self._deliver())
            try:
                done, _ = await asyncio.wait({connected, delivering}, return_when=asyncio.FIRST_COMPLETED)
                with translated():
                    for task in done:
                        task.result()
            finally:
                connected.cancel()
                delivering.cancel()
                await asyncio.gather(connected, delivering, return_exceptions=True)
        finally:
            stop_waiting_for_guilds(self.client)
            await self.client.close()

    async def _deliver(self) -> None:
        while True:
            work = await self.queue.get()
            await work()
