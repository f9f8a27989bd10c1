"""A conversation with a bot, in a few lines, on any of the fakes.

ann = Conversation(server, server.person("7", "Ann"))
assert await ann.says("hello") == ["Hello Ann."]
assert await ann.taps("Red") == ["Red it is."]
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from adapters.testing.people import Room, Said

QUIET_SECONDS = 0.2
"""So long nothing changes in a chat before an answer counts as whole."""


class Conversation:
    """One person in one chat with the bot: its direct chat, where no other is given. `server` is any of the fakes."""

    def __init__(self, server: Any, person: Any, room: Any = None, *, timeout: float = 10.0) -> None:
        self.server = server
        self.person = person
        self.room: Room = room or server.dm(person)
        self.timeout = timeout
        self._heard: set[str] = set()

    def said_by_bot(self) -> list[Said]:
        """What the person sees of the bot now."""
        return [said for said in self.server.visible(self.room) if self.server.is_bots(said)]

    async def says(self, text: str, *, answers: int = 1, **more: Any) -> list[str]:
        """The bot's new messages, once there are `answers` and they change no more. Raises AssertionError where they do not come."""
        self._heard = {str(said.id) for said in self.said_by_bot()}
        self.server.says(self.room, self.person, text, **more)
        return await self.hears(answers)

    async def taps(self, label: str, *, answers: int = 1) -> list[str]:
        """Taps the newest button of this name."""
        card = next(said for said in reversed(self.said_by_bot()) if label in said.labels)
        self._heard = {str(said.id) for said in self.said_by_bot()}
        self.server.tap(self.room, self.person, card, label)
        return await self.hears(answers)

    async def hears(self, answers: int = 1) -> list[str]:
        """The bot's messages since the person last said something."""
        loop = asyncio.get_running_loop()
        ends, before, since = loop.time() + self.timeout, list[str](), loop.time()
        while len(before) < answers or loop.time() < since + QUIET_SECONDS:
            await asyncio.sleep(0.01)
            now = self._new(self.said_by_bot())
            if now != before:
                before, since = now, loop.time()
            if loop.time() > ends:
                raise AssertionError(f"{answers} answers were expected, and there are: {before}")
        return before

    def _new(self, said: Sequence[Said]) -> list[str]:
        return [one.text for one in said if str(one.id) not in self._heard]
