"""Fetches what was said while the bot was away: Discord keeps no events, but the messages themselves."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import discord
import structlog
from discord.utils import time_snowflake

from adapters.base import DeliveryError
from adapters.discord.errors import DiscordRefusal, translated
from adapters.payload import text
from sessions.keys import Address, ChatKind, Sender

_PER_CHAT, _PAGE = 500, 100
_LONGEST_MS = 7 * 24 * 3_600_000
"""Older messages nobody waits for any more."""

log = structlog.get_logger(__name__)


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
            except Exception as error:  # noqa: BLE001  # one message that cannot be parsed must not hide those behind it
                log.warning("discord.event_skipped", message_id=number, reason=type(error).__name__)
            else:
                yield said
        after = max(numbered, default=after)
        if len(numbered) < _PAGE:
            return
