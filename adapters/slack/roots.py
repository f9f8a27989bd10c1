"""The first messages of threads. One that an app wrote is heard by nobody: it is fetched when the bot is first mentioned below it."""

import asyncio
from collections import OrderedDict
from dataclasses import replace

import structlog

from adapters.base import DeliveryError
from adapters.payload import parts, text
from adapters.slack.normalize import SlackBot, app_root
from adapters.slack.web import SlackWeb
from sessions.keys import Address
from sessions.messages import Inbound, InboundKind, Quote

_KEPT = 5_000
_SECONDS = 1.0
"""So long a root is waited for: an event has to be acknowledged within three."""

log = structlog.get_logger(__name__)


class Roots:
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
