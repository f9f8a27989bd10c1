"""The connection to Discord's gateway: events go into a queue, in their order, and are delivered one after the other.

Discord keeps no events for a bot that is away, but the messages themselves: those are fetched.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import discord
import structlog
from discord.utils import time_snowflake

from adapters.base import DeliveryError
from adapters.discord.rest import DiscordRefusal, new_client, translated
from adapters.http import MALFORMED, text
from sessions.keys import Address, ChatKind, Sender

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
            except MALFORMED as error:
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


_PER_CHAT, _PAGE = 500, 100
_LONGEST_MS = 7 * 24 * 3_600_000
"""Older messages nobody waits for any more."""


async def missed(
    client: discord.Client, since: int, now: int, chats: Sequence[Address], users: Sequence[Sender]
) -> AsyncIterator[discord.Message]:
    """Yields the messages after `since` (epoch milliseconds), chat by chat, oldest first in each."""
    after = time_snowflake(datetime.fromtimestamp(max(since, now - _LONGEST_MS) / 1000, UTC))
    seen: set[int] = set()
    for channel in _new_messages(client, after):
        seen.add(channel.id)
        async for said in _since(client, channel, after):
            yield said
    async for direct in _direct(client, chats, users):
        if direct not in seen:
            seen.add(direct)
            channel = client.get_partial_messageable(direct, type=discord.ChannelType.private)
            async for said in _since(client, channel, after):
                yield said


def _new_messages(client: discord.Client, after: int) -> Iterable[Any]:
    """Returns the channels and threads whose last message is newer; Discord names it when the connection begins."""
    for guild in client.guilds:
        for channel in (*guild.text_channels, *guild.voice_channels, *guild.threads):
            if (channel.last_message_id or 0) > after:
                yield channel


async def _direct(client: discord.Client, chats: Sequence[Address], users: Sequence[Sender]) -> AsyncIterator[int]:
    # Of direct messages a new connection tells nothing: the chats have to be asked one by one.
    for user in users:
        if user.id.isdecimal():
            try:
                with translated():
                    opened = text(await client.http.start_private_message(int(user.id)), "id")
            except DeliveryError as error:
                log.debug("discord.no_dm", user_id=user.id, error=str(error))
            else:
                if opened.isdecimal():
                    yield int(opened)
    for chat in chats:
        if chat.kind is ChatKind.DM and chat.chat_id.isdecimal():
            yield int(chat.chat_id)


async def _since(client: discord.Client, channel: Any, after: int) -> AsyncIterator[discord.Message]:
    """Yields the messages of one chat. The library's own `history` ends with the first one that it cannot parse."""
    for _ in range(0, _PER_CHAT, _PAGE):
        try:
            with translated():
                page: list[Any] = list(await client.http.logs_from(channel.id, _PAGE, after=after) or ())
        except DiscordRefusal as error:  # it may not read there, or the chat is gone
            log.debug("discord.no_history", channel=channel.id, error=str(error))
            return
        numbered = {int(number): one for one in page if (number := text(one, "id")).isdecimal()}
        for number in sorted(numbered):
            try:
                state: Any = client._connection  # pyright: ignore[reportPrivateUsage]
                said = state.create_message(channel=channel, data=numbered[number])
            except MALFORMED as error:
                log.warning("discord.event_skipped", message_id=number, reason=type(error).__name__)
            else:
                yield said
        after = max(numbered, default=after)
        if len(numbered) < _PAGE:
            return
