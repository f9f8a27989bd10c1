"""Fetches what was said while the bot was away: Discord keeps no events, but the messages themselves."""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import discord
import structlog
from discord.utils import time_snowflake

from adapters.base import DeliveryError
from adapters.discord.errors import DiscordRefusal, translated
from sessions.keys import Address, ChatKind, Sender

_PER_CHAT = 500
_LONGEST_MS = 7 * 24 * 3_600_000
"""Older messages nobody waits for any more."""

log = structlog.get_logger(__name__)


async def missed(
    client: discord.Client, since: int, now: int, chats: Sequence[Address], users: Sequence[Sender]
) -> AsyncIterator[discord.Message]:
    """Yields the messages after `since` (epoch milliseconds), chat by chat, oldest first in each."""
    after = discord.Object(time_snowflake(datetime.fromtimestamp(max(since, now - _LONGEST_MS) / 1000, UTC)))
    seen: set[int] = set()
    for channel in _new_messages(client, after.id):
        seen.add(channel.id)
        async for said in _since(channel, after):
            yield said
    async for direct in _direct(client, chats, users):
        if direct.id not in seen:
            seen.add(direct.id)
            async for said in _since(direct, after):
                yield said


def _new_messages(client: discord.Client, after: int) -> Iterable[Any]:
    """Returns the channels and threads whose last message is newer; Discord names it when the connection begins."""
    for guild in client.guilds:
        for channel in (*guild.text_channels, *guild.voice_channels, *guild.threads):
            if (channel.last_message_id or 0) > after:
                yield channel


async def _direct(client: discord.Client, chats: Sequence[Address], users: Sequence[Sender]) -> AsyncIterator[Any]:
    # Of direct messages a new connection tells nothing: the chats have to be asked one by one.
    for user in users:
        if user.id.isdecimal():
            try:
                with translated():
                    yield await client.create_dm(discord.Object(int(user.id)))
            except DeliveryError as error:
                log.debug("discord.no_dm", user_id=user.id, error=str(error))
    for chat in chats:
        if chat.kind is ChatKind.DM and chat.chat_id.isdecimal():
            yield client.get_partial_messageable(int(chat.chat_id), type=discord.ChannelType.private)


async def _since(channel: Any, after: discord.Object) -> AsyncIterator[discord.Message]:
    try:
        with translated():
            async for said in channel.history(limit=_PER_CHAT, after=after, oldest_first=True):
                yield said
    except DiscordRefusal as error:  # it may not read there, or the chat is gone
        log.debug("discord.no_history", channel=channel.id, error=str(error))
