"""Names of people, and their direct chats. Slack's events hold ids only."""

import asyncio
from collections import OrderedDict
from dataclasses import replace

from adapters.base import DeliveryError
from adapters.payload import part, text
from adapters.slack.web import SlackWeb
from sessions.messages import Inbound

_KEPT = 5_000
_SECONDS = 1.0
"""So long a name is waited for: an event has to be acknowledged within three."""


class Names:
    def __init__(self, web: SlackWeb) -> None:
        self._web = web
        self._names: OrderedDict[str, str] = OrderedDict()
        self._chats: dict[str, str] = {}

    def known(self, user: str) -> str:
        return self._names.get(user, "")

    def learn(self, user: str, name: str) -> None:
        self._names[user] = name
        if len(self._names) > _KEPT:
            self._names.popitem(last=False)

    async def with_sender_name(self, inbound: Inbound) -> Inbound:
        """Returns the message with the sender's display name; with the id where Slack does not tell the name in time."""
        if inbound.sender.name or not inbound.sender.id:
            return inbound
        if inbound.sender.id not in self._names:
            await self._ask(inbound.sender.id)
        return replace(inbound, sender=replace(inbound.sender, name=self.known(inbound.sender.id)))

    async def _ask(self, user: str) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._web.query("users.info", user=user)
        except (TimeoutError, DeliveryError):  # a message without a name is better than none
            return
        person = part(found, "user")
        profile = part(person, "profile")
        self.learn(user, text(profile, "display_name") or text(profile, "real_name") or text(person, "name"))

    async def moved_to_dm(self, inbound: Inbound) -> Inbound:
        """Moves what was tapped on the bot's own page into the direct chat."""
        user = inbound.sender.id
        if user not in self._chats:
            opened = await self._web.query("conversations.open", users=user)
            self._chats[user] = text(part(opened, "channel"), "id")
        return replace(inbound, address=replace(inbound.address, chat_id=self._chats[user]))
