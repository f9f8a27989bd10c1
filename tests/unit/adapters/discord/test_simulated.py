"""The normalizer on another people's Discord: simcord runs discord.py in process, against a model of the platform of its own."""

import asyncio

import discord
import pytest
import simcord

from adapters.discord.listener import wanted_intents
from adapters.discord.normalize import DiscordBot, message
from adapters.discord.rest import new_client
from sessions.keys import ChatKind
from sessions.messages import Inbound, InboundKind


class SimulatedBot:
    """Keeps what it hears, and answers in words that are to be quoted."""

    def __init__(self) -> None:
        self.client = new_client(wanted_intents())
        self.heard: list[Inbound] = []
        self.client.event(self.on_message)
        self.client.event(self.on_raw_message_edit)

    async def on_message(self, said: discord.Message) -> None:
        self._keep(said, InboundKind.MESSAGE)
        if said.content == "answer me" and not said.author.bot:
            await said.channel.send("an answer")

    async def on_raw_message_edit(self, event: discord.RawMessageUpdateEvent) -> None:
        self._keep(event.message, InboundKind.EDIT)

    def _keep(self, said: discord.Message, kind: InboundKind) -> None:
        assert self.client.user
        inbound = message(said, DiscordBot(id=self.client.user.id), kind)
        if inbound is not None:
            self.heard.append(inbound)


@pytest.fixture
def bot() -> SimulatedBot:
    return SimulatedBot()


async def test_channels_mentions_and_other_bots(bot: SimulatedBot) -> None:
    async with simcord.run(bot.client) as env:
        guild = env.create_guild()
        channel, ann = guild.create_text_channel("general"), guild.add_member(env.create_user("ann"))
        me = bot.client.user
        assert me
        await ann.send(channel, "to nobody")
        await ann.send(channel, f"<@{me.id}> hello")
        await ann.send(channel, "@everyone look")
        plain, named, everyone = bot.heard
        assert (plain.mentioned, plain.mentions_other, plain.address.kind) == (False, False, ChatKind.CHANNEL)
        assert (named.mentioned, named.text, named.address.chat_id) == (True, "hello", str(channel.id))
        assert not everyone.mentioned


async def test_our_own_words_are_ignored(bot: SimulatedBot) -> None:
    async with simcord.run(bot.client) as env:
        guild = env.create_guild()
        channel, ann = guild.create_text_channel("general"), guild.add_member(env.create_user("ann"))
        await ann.send(channel, "answer me")
        await asyncio.sleep(0)
        assert [one.text for one in bot.heard] == ["answer me"]
        assert channel.last_message.content == "an answer"
