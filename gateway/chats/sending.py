"""Sends one row of the outbox: renders it, then makes the call that its kind and the platform want.

Keeps to the limits of platforms and chats.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adapters.base import Adapter, Pace, SendsOnce, ShowsDrafts, Undeliverable
from adapters.text import off_the_loop
from gateway.chats.approvals import CardEdit
from gateway.chats.voice import said_aloud
from gateway.context import App
from gateway.observe.logging import get_logger
from sessions import outbox
from sessions.keys import Address, ChatKind
from sessions.messages import Outbound, Piece
from sessions.records import OutRow

log = get_logger(__name__)


WITHOUT_VOICE = "without_voice"
"""A key in the piece of a voice message. It is removed before an adapter gets the piece. Its value is sent if the platform refuses the voice;
None: nothing is sent, because the text follows anyway.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRow:
    """A message that has arrived. `was_preview`: it took the place of the preview of its run."""

    message_id: str
    was_preview: bool = False


class RowSender:
    """Renders and sends rows for one platform."""

    def __init__(self, app: App, adapter: Adapter) -> None:
        self.app = app
        self._adapter = adapter

    async def rendered(self, row: OutRow) -> Sequence[Piece]:
        """Renders the row, before the transaction: rendering inside it would hold up every other writer."""
        content = row.content
        if content is None:
            return ()
        # In groups it always quotes the message that it answers; in a DM only if something came in between.
        in_dm = row.route.address.kind is ChatKind.DM
        quotes = not in_dm or await self.app.database.read(outbox.came_between, row)
        reply_to = row.route.reply_to if quotes else None
        wanted = content.outbound(row.route.address, reply_to=reply_to, respond_to=row.route.respond_to)
        pieces = await off_the_loop(content.text, self._render, wanted)
        if content.spoken_from is None:
            return pieces
        voice = await said_aloud(self.app, row.dedup_key, content.text[content.spoken_from :])
        if voice is None:
            return pieces
        first, *others = await off_the_loop(content.text, self._render, replace(wanted, attachments=(voice,)))
        # Where the voice has the text as its caption, refusing the one must not lose the other.
        return {**first, WITHOUT_VOICE: None if len(others) == len(pieces) else pieces[0]}, *others

    def _render(self, wanted: Outbound) -> Sequence[Piece]:
        """Returns the pieces of a message. Markdown that shows nothing, such as a link definition, is sent as it stands. Raises
        Undeliverable when nothing is left.
        """
        pieces = self._adapter.render(wanted)
        if not pieces and wanted.text.strip():
            pieces = self._adapter.render(replace(wanted, text=f"```\n{wanted.text.replace('```', '` ` `')}\n```"))
        if not pieces:
            raise Undeliverable("there is nothing in it that could be sent")
        return pieces

    async def send(self, row: OutRow, content: Piece | CardEdit, draft: str | None) -> SentRow | None:
        """Sends the row, or finishes its preview. Returns None when the preview cannot become this message, which must be sent then."""
        address = row.route.address
        if isinstance(content, CardEdit):
            return await self._edit(content, address)
        if WITHOUT_VOICE in content:
            try:
                spoken = {key: value for key, value in content.items() if key != WITHOUT_VOICE}
                return await self.send(row, spoken, draft)
            except Undeliverable as error:
                log.warning("voice.not_sent", row=row.id, error=str(error))
                text = content[WITHOUT_VOICE]
                return SentRow(message_id="") if text is None else await self.send(row, text, draft)
        if "path" in content and "filename" in content:  # a file, see `adapters.base.read_file`
            content = {**content, "path": await self._outgoing(content["path"])}
        if draft is not None and isinstance(self._adapter, ShowsDrafts):
            receipt = await self._adapter.finish_draft(address, draft, content)
            if receipt is None:
                return None
            return SentRow(message_id=receipt.message_id, was_preview=True)
        # The key makes the platform itself recognise a message that is sent again after a crash.
        if isinstance(self._adapter, SendsOnce):
            receipt = await self._adapter.send_once(address, content, row.dedup_key)
        else:
            receipt = await self._adapter.send(address, content)
        return SentRow(message_id=receipt.message_id)

    async def _outgoing(self, stored: str) -> str:
        """Returns where the file is here. Raises Undeliverable for one that no tool has put there: a restored database may hold rows of anybody."""
        path = stored if self.app.files is None else (await self.app.files.local([stored]))[stored]

        def is_ours() -> bool:
            return Path(path).resolve().is_relative_to(self.app.outgoing.resolve())

        if not await asyncio.to_thread(is_ours):
            raise Undeliverable(f"The file {Path(path).name} is not among those that the agent has sent.")
        return path

    async def _edit(self, card: CardEdit, address: Address) -> SentRow:
        """Edits a card that is closed. A card that is gone or cannot be edited is left as it is."""
        if card.message_id:
            pieces = self._render(Outbound(address=address, text=card.text))
            try:
                await self._adapter.edit(address, card.message_id, pieces[min(card.part, len(pieces)) - 1])
            except Undeliverable as error:
                log.debug("card.left", error=str(error))
        return SentRow(message_id=card.message_id)


def is_edit(row: OutRow) -> bool:
    return row.closes is not None


MINUTE = 60.0
KEPT_FREE = 5
"""Of a group's calls per minute, those that previews and typing leave to real messages."""
MARGIN = 1.2
"""Calls that leave evenly arrive a little unevenly."""
_MANY = 5_000


class RateLimiter:
    def __init__(
        self,
        pace: Pace,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pace = pace
        self._monotonic = monotonic
        self._sleep = sleep
        self._free_at: dict[str, float] = {}
        self._edit_at: dict[str, float] = {}
        self._platform_free_at = 0.0
        self._called_at = 0.0
        self._call_lock = asyncio.Lock()
        self._minute: dict[str, deque[float]] = {}

    async def wait_for_turn(self, address: Address) -> None:
        """Waits until a message may be sent to this chat."""
        # The turn is reserved before the wait, so that others who ask meanwhile come after it.
        await self._wait_until(self._reserve(address, self._monotonic()))

    async def wait_before_call(self) -> None:
        """Waits just before the call: turns are planned evenly, but a process that stood still makes all of them at once."""
        async with self._call_lock:
            await self._wait_until(self._called_at + MARGIN / self._pace.per_second)
            self._called_at = self._monotonic()

    def try_turn(self, address: Address, *, edit: bool = False) -> bool:
        """Takes a turn and returns True if it is free now and nobody waits; for calls that may be left out."""
        now = self._monotonic()
        if self._earliest(address, now) > now or (edit and self._edit_at.get(address.chat_id, 0) > now):
            return False
        if self._left_this_minute(address, now) <= KEPT_FREE:
            return False
        self._reserve(address, now)
        if edit:
            self._edit_at[address.chat_id] = now + self._pace.edit
        return True

    def pause(self, seconds: float, address: Address | None = None) -> None:
        """Makes no call for so many seconds, to this chat or to the whole platform, because the platform asked for it."""
        until = self._monotonic() + seconds
        if address is None:
            self._platform_free_at = max(self._platform_free_at, until)
        else:
            self._free_at[address.chat_id] = max(self._free_at.get(address.chat_id, 0), until)

    def _earliest(self, address: Address, now: float) -> float:
        earliest = max(now, self._free_at.get(address.chat_id, 0), self._platform_free_at)
        limit = self._pace.group_per_minute
        calls = self._minute.get(address.chat_id)
        if limit is not None and calls is not None and len(calls) >= limit:
            earliest = max(earliest, calls[-limit] + MINUTE)  # when the oldest call of the minute falls out of it
        return earliest

    def _left_this_minute(self, address: Address, now: float) -> float:
        limit = self._pace.group_per_minute
        if limit is None or address.kind is ChatKind.DM:
            return float("inf")
        return limit - sum(1 for at in self._minute.get(address.chat_id, ()) if at > now - MINUTE)

    def _reserve(self, address: Address, now: float) -> float:
        at = self._earliest(address, now)
        if len(self._free_at) > _MANY:
            self._forget_past(at)
        self._free_at[address.chat_id] = at + (self._pace.dm if address.kind is ChatKind.DM else self._pace.group)
        self._platform_free_at = at + MARGIN / self._pace.per_second
        if self._pace.group_per_minute is not None and address.kind is not ChatKind.DM:
            self._minute.setdefault(address.chat_id, deque(maxlen=self._pace.group_per_minute)).append(at)
        return at

    def _forget_past(self, now: float) -> None:
        self._free_at = {chat: at for chat, at in self._free_at.items() if at > now}
        self._edit_at = {chat: at for chat, at in self._edit_at.items() if at > now}
        self._minute = {chat: calls for chat, calls in self._minute.items() if calls[-1] > now - MINUTE}

    async def _wait_until(self, at: float) -> None:
        if (wait := at - self._monotonic()) > 0:
            await self._sleep(wait)
