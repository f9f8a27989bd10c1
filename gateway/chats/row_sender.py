"""Sends one row of the outbox: renders it, then makes the call that its kind and the platform want."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from adapters.base import Adapter, EditsMessages, SendsOnce, ShowsDrafts, Undeliverable
from adapters.text import off_the_loop
from gateway.chats.closed_cards import CardEdit
from gateway.observe.logging import get_logger
from sessions import outbox
from sessions.db import Database
from sessions.keys import Address, ChatKind
from sessions.messages import Outbound, Piece
from sessions.outbox_body import OutboxBody
from sessions.records import OutRow

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRow:
    """A message that has arrived. `was_preview`: it took the place of the preview of its run."""

    message_id: str
    was_preview: bool = False


class Previews(Protocol):
    """The previews of running answers. The final message may replace one."""

    async def take_preview(self, run_id: str, reply_to: str | None) -> str | None:
        """Returns the preview that the final message should replace; None: send a new message."""
        ...

    def mark_final(self, run_id: str) -> None:
        """Notes that the preview has become the final message."""
        ...

    async def clear(self, run_id: str) -> None:
        """Removes the preview of a run whose answer was sent, or never will be."""
        ...

    def end_without_answer(self, run_ids: Sequence[str]) -> None:
        """Notes that these runs end without an answer."""
        ...


class RowSender:
    """Renders and sends rows for one platform. `previews` are those that a final message may replace. Files are sent from `outgoing` alone;
    None: from nowhere.
    """

    def __init__(self, database: Database, adapter: Adapter, previews: Previews, outgoing: Path | None = None) -> None:
        self._database = database
        self._adapter = adapter
        self._previews = previews
        self._outgoing = outgoing

    async def rendered(self, row: OutRow) -> Sequence[Piece]:
        """Renders the row, before the transaction: rendering inside it would hold up every other writer."""
        body = row.body
        if not isinstance(body, OutboxBody) or body.closes is not None:
            return ()
        # In groups it always quotes the message that it answers; in a DM only if something came in between.
        in_dm = row.address.address.kind is ChatKind.DM
        quotes = not in_dm or await self._database.read(outbox.came_between, row)
        reply_to = row.address.reply_to if quotes else None
        wanted = body.outbound(row.address.address, reply_to=reply_to, respond_to=row.address.respond_to)
        return await off_the_loop(body.text, self._render, wanted)

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
        address = row.address.address
        if isinstance(content, CardEdit):
            return await self._edit(content, address)
        if "path" in content and "filename" in content:  # a file, see `adapters.base.read_file`
            await asyncio.to_thread(self._require_outgoing, Path(content["path"]))
        if draft is not None and isinstance(self._adapter, ShowsDrafts):
            receipt = await self._adapter.finish_draft(address, draft, content)
            if receipt is None:
                return None
            self._previews.mark_final(row.run_id or "")
            return SentRow(message_id=receipt.message_id, was_preview=True)
        # The key makes the platform itself recognise a message that is sent again after a crash.
        if isinstance(self._adapter, SendsOnce):
            receipt = await self._adapter.send_once(address, content, row.dedup_key)
        else:
            receipt = await self._adapter.send(address, content)
        return SentRow(message_id=receipt.message_id)

    def _require_outgoing(self, file: Path) -> None:
        """Raises Undeliverable for a file that no tool has put there: a restored database may hold rows of anybody."""
        if self._outgoing is None or not file.resolve().is_relative_to(self._outgoing.resolve()):
            raise Undeliverable(f"The file {file.name} is not among those that the agent has sent.")

    async def _edit(self, card: CardEdit, address: Address) -> SentRow:
        """Edits a card that is closed. A card that is gone or cannot be edited is left as it is."""
        if card.message_id and isinstance(self._adapter, EditsMessages):
            pieces = self._render(Outbound(address=address, text=card.text))
            try:
                await self._adapter.edit(address, card.message_id, pieces[min(card.part, len(pieces)) - 1])
            except Undeliverable as error:
                log.debug("card.left", error=str(error))
        return SentRow(message_id=card.message_id)


def is_edit(row: OutRow) -> bool:
    return isinstance(row.body, OutboxBody) and row.body.closes is not None
