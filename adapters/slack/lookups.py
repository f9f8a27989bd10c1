"""Looks up what events of Slack leave out: names of people, their direct chats, the first message of a thread, the type of a chat."""

import asyncio
from collections import OrderedDict
from dataclasses import replace

import structlog

from adapters.base import DeliveryError
from adapters.http import Json, part, parts, text
from adapters.slack.normalize import SlackBot, app_root
from adapters.slack.web import SlackWeb
from sessions.keys import Address
from sessions.messages import Inbound, InboundKind, Quote

log = structlog.get_logger(__name__)

_KEPT = 5_000
_SECONDS = 1.0
"""So long an answer is waited for: an event has to be acknowledged within three."""
TYPE_SECONDS = 0.5
"""The two events of a mention are sent in the same moment."""


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


class ChatTypes:
    """The types of chats. A mention comes as two events, `message` and `app_mention`, in either order, and only the first one names the type: without
    it a group DM would be taken for a channel, which is another session.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()
        self._news = asyncio.Condition()

    async def complete(self, body: Json) -> Json:
        """Returns the body with the type of the chat in its event, where that is known within TYPE_SECONDS."""
        event = part(body, "event")
        channel = text(event, "channel")
        if not channel or event.get("type") not in {"message", "app_mention", "agent_session_stopped"}:
            return body
        if channel_type := text(event, "channel_type"):
            await self._learn(channel, channel_type)
            return body
        if channel not in self._known and event["type"] == "app_mention":
            try:
                async with asyncio.timeout(TYPE_SECONDS), self._news:
                    await self._news.wait_for(lambda: channel in self._known)
            except TimeoutError:  # an app may hear of mentions alone: the next one is not held up
                await self._learn(channel, "channel")
        return {**body, "event": {**event, "channel_type": self._known.get(channel)}}

    async def _learn(self, channel: str, channel_type: str) -> None:
        if self._known.get(channel) == channel_type:
            return
        self._known[channel] = channel_type
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        async with self._news:
            self._news.notify_all()


class Roots:
    """The first messages of threads. One that an app wrote is heard by nobody: it is fetched when the bot is first mentioned below it."""

    def __init__(self, web: SlackWeb) -> None:
        self._web = web
        self._known: OrderedDict[tuple[str, str | None], None] = OrderedDict()

    async def with_root(self, inbound: Inbound, me: SlackBot) -> Inbound:
        """Returns the message with what an app wrote above it as its quote, if this is the first mention there."""
        where = inbound.address
        if inbound.kind is not InboundKind.MESSAGE or not inbound.in_thread or not inbound.mentioned or inbound.quote:
            return inbound
        if _place(where) in self._known:
            return inbound
        return replace(inbound, quote=await self._ask(where, me))

    def note(self, inbound: Inbound) -> None:
        """The message with its quote was stored."""
        if inbound.in_thread and inbound.mentioned:
            self._known[_place(inbound.address)] = None
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)

    async def _ask(self, where: Address, me: SlackBot) -> Quote | None:
        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._web.query(
                    "conversations.replies", channel=where.chat_id, ts=where.thread_id, limit=1
                )
        except (TimeoutError, DeliveryError) as error:  # a message without what is above it is better than none
            log.warning("slack.no_root", reason=str(error) or type(error).__name__)
            return None
        roots = [one for one in parts(found, "messages") if text(one, "ts") == where.thread_id]
        return app_root(roots[0], me) if roots else None


def _place(address: Address) -> tuple[str, str | None]:
    return address.chat_id, address.thread_id
