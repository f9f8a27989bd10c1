"""Discord through discord.py: its gateway connection in, its HTTP client out."""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import discord
import structlog

from adapters.base import (
    CatchesUp,
    Deliver,
    DeliveryError,
    Pace,
    SendsOnce,
    ShowsDrafts,
    TryLater,
    Unauthorized,
    Undeliverable,
    read_file,
)
from adapters.discord.config import DiscordConfig
from adapters.discord.listener import Listener, missed
from adapters.discord.normalize import DiscordBot, interaction, message, unreadable
from adapters.discord.render import NO_EMBEDS, render, render_draft, reply
from adapters.discord.rest import NO_INTENT, DiscordRefusal, Rest, point_at, without
from adapters.http import MALFORMED, as_object, parts, text
from adapters.text import off_the_loop
from sessions.keys import Address, Platform, Sender
from sessions.messages import Attachment, Inbound, InboundKind, Outbound, Piece, Receipt

_KEPT = 2_000
# Nobody is pinged, whatever the model writes: by default Discord would notify @everyone.
_NO_MENTIONS: dict[str, Any] = {"parse": [], "replied_user": False}
_EPHEMERAL = 1 << 6
_ACKNOWLEDGE_SECONDS = 3.0  # after that Discord shows that the command failed
_OURS = ("filename", "path", "text", "respond_to", "first")
_MESSAGES = "/channels/{channel_id}/messages"
_MESSAGE = "/channels/{channel_id}/messages/{message_id}"
_REACTION = "/channels/{channel_id}/messages/{message_id}/reactions/{emoji}/@me"

PERMISSIONS = discord.Permissions(
    view_channel=True,
    send_messages=True,
    send_messages_in_threads=True,
    read_message_history=True,
    attach_files=True,
    add_reactions=True,
)
log = structlog.get_logger(__name__)


class Discord(ShowsDrafts, SendsOnce, CatchesUp):
    platform: str = Platform.DISCORD
    reports_success = True
    pace = Pace(per_second=40, dm=1.0, group=1.0, edit=1.25)
    typing_every = 8.0  # it stays for ten seconds
    remembers_for = 120.0  # nonces, "for some minutes"

    def __init__(self, config: DiscordConfig, *, clock: Callable[[], float] = time.time) -> None:
        logging.getLogger("discord").setLevel(logging.CRITICAL)  # outages are raised, and told once
        point_at(config.api_base, config.gateway_url)
        self._config = config
        self._clock = clock
        self._token = config.token.get_secret_value()
        self._rest = Rest(self._token)
        self._me: DiscordBot | None = None
        self._application = 0
        self._seen: int | None = None
        self._since = round(clock() * 1000)
        self._chats: Sequence[Address] = ()
        self._users: Sequence[Sender] = ()
        self._acknowledging: dict[str, asyncio.Task[None]] = {}  # by the token of the interaction
        self._recent: OrderedDict[int, Inbound] = OrderedDict()

    # --- in ---

    async def run(self, deliver: Deliver) -> None:
        listener = Listener(self._token, alive=self.note_success)

        user = (await self._rest.client()).user
        self._me = DiscordBot(id=user.id if user is not None else 0)

        async def on_connect() -> None:
            # In the queue before all messages of this session: they wait here until the missed ones were delivered.
            await listener.ready.wait()
            # After every new session, also one that the library began because the old one was invalid.
            since, now = max(self._since, self._seen or 0), round(self._clock() * 1000)
            async for said in missed(listener.client, since, now, self._chats, self._users):
                await self._take(said, deliver, InboundKind.MESSAGE)

        async def on_message(what: discord.Message) -> None:
            await self._take(what, deliver, InboundKind.MESSAGE)

        async def on_edit(event: discord.RawMessageUpdateEvent) -> None:
            if event.message.edited_at is not None:  # else a link got its preview
                await self._take(event.message, deliver, InboundKind.EDIT)

        async def on_delete(event: discord.RawMessageDeleteEvent) -> None:
            before = self._recent.pop(event.message_id, None)
            if before is not None:
                await deliver(
                    Inbound(
                        dedup_key=f"{before.dedup_key}:deleted",
                        address=before.address,
                        sender=before.sender,
                        message_id=before.message_id,
                        kind=InboundKind.DELETED,
                    )
                )

        async def on_interaction(event: discord.Interaction[Any]) -> None:
            try:
                inbound = interaction(event, as_object(event.data))
            except MALFORMED as error:
                log.warning("discord.event_skipped", event_name="INTERACTION_CREATE", reason=type(error).__name__)
                return
            if inbound is None:
                return
            await deliver(inbound)
            # Acknowledged after the commit, and not here: a call that hangs or fails must not hold up the events behind it.
            if inbound.respond_to:
                task = asyncio.create_task(self._acknowledge_command(event.id, event.token))
                self._acknowledging[event.token] = task
                task.add_done_callback(lambda _: self._acknowledging.pop(event.token, None))

        async def on_unreadable(data: Any) -> None:
            if (inbound := unreadable(as_object(data))) is not None:
                await deliver(inbound)

        listener.on_unreadable_message(on_unreadable)
        listener.on("connect", on_connect)
        listener.on("message", on_message)
        listener.on("raw_message_edit", on_edit)
        listener.on("raw_message_delete", on_delete)
        listener.on("interaction", on_interaction)
        await listener.run()

    async def _take(self, said: discord.Message, deliver: Deliver, kind: InboundKind) -> None:
        inbound = None
        try:
            inbound = message(said, self._me, kind) if self._me is not None else None
        except MALFORMED as error:
            log.warning("discord.event_skipped", message_id=said.id, reason=type(error).__name__)
        if inbound is not None:
            self._recent[said.id] = inbound  # for its author, whom Discord does not name when it is deleted
            if len(self._recent) > _KEPT:
                self._recent.popitem(last=False)
            await deliver(inbound)
        # After the delivery: `seen_until` promises that everything before it is stored.
        if kind is InboundKind.MESSAGE:
            self._seen = max(self._seen or 0, round(said.created_at.timestamp() * 1000))

    async def _acknowledge_command(self, number: int, token: str) -> None:
        """Best effort: where it fails, Discord shows that the command failed, and the answer goes into the channel."""
        try:
            await self._acknowledge(f"{number}:{token}", {"type": 5, "data": {"flags": _EPHEMERAL}})
        except DeliveryError as error:
            log.warning("discord.command_not_acknowledged", error=str(error))

    async def _acknowledge(self, interaction_and_token: str, body: dict[str, Any]) -> None:
        number, _, token = interaction_and_token.partition(":")
        # With its own token, so that the library counts the rate of each interaction by itself.
        ids = {"webhook_id": number, "webhook_token": token}
        try:
            async with asyncio.timeout(_ACKNOWLEDGE_SECONDS):
                await self._rest.call("POST", "/interactions/{webhook_id}/{webhook_token}/callback", ids, body)
        except TimeoutError:
            raise TryLater("Discord did not answer in time.") from None

    def catch_up(self, since: int, chats: Sequence[Address], users: Sequence[Sender]) -> None:
        self._since, self._chats, self._users = since, chats, users

    def seen_until(self) -> int | None:
        return self._seen

    async def check(self) -> str:
        client = await self._rest.client()
        about = as_object(await self._rest.call("GET", "/applications/@me"))
        self._application = int(text(about, "id") or 0)
        # Said here, by setup and doctor, before Discord closes the connection for it (4014).
        flags = discord.ApplicationFlags._from_value(int(text(about, "flags") or 0))  # pyright: ignore[reportPrivateUsage]
        if not (flags.gateway_message_content or flags.gateway_message_content_limited):
            raise Unauthorized(NO_INTENT)
        return f"@{client.user.name if client.user else 'the bot'}"

    def setup_notes(self) -> Sequence[str]:
        link = discord.utils.oauth_url(
            self._application, permissions=PERMISSIONS, scopes=("bot", "applications.commands")
        )
        return (f"Add it to your server: {link}",)

    async def close(self) -> None:
        for task in self._acknowledging.values():
            task.cancel()
        await self._rest.close()

    # --- out ---

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        return render(outbound)

    async def send(self, address: Address, piece: Piece) -> Receipt:
        return await self._send(address, piece, None)

    async def send_once(self, address: Address, piece: Piece, key: str) -> Receipt:
        # A nonce has 25 characters at most; 12 bytes are 24.
        return await self._send(address, piece, hashlib.blake2b(key.encode(), digest_size=12).hexdigest())

    async def _send(self, address: Address, piece: Piece, nonce: str | None) -> Receipt:
        body = {**without(piece, *_OURS), "allowed_mentions": _NO_MENTIONS}
        file = await _file(piece)
        if "respond_to" in piece and file is None:
            with suppress(DiscordRefusal):  # it was too long ago, so that everybody hears it
                return await self._respond(piece, body)
        # With `enforce_nonce` Discord returns the first message instead of posting a second one with this nonce.
        once = {"nonce": nonce, "enforce_nonce": True} if nonce else {}
        ids = {"channel_id": address.chat_id}
        sent = await self._rest.call("POST", _MESSAGES, ids, {**body, **once}, file=file)
        return Receipt(message_id=text(sent, "id"))

    async def _respond(self, piece: Piece, body: dict[str, Any]) -> Receipt:
        """Sends to the person who gave the command, alone."""
        application, _, token = piece["respond_to"].partition(":")
        if (acknowledging := self._acknowledging.get(token)) is not None:  # there is nothing to fill in before
            await asyncio.wait({acknowledging})
        ids = {"webhook_id": application, "webhook_token": token}
        # The first piece fills in the deferred answer, which has its flags already; the others are follow-ups with flags of their own.
        if piece.get("first"):
            body = without(body, "flags")
            path = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
            sent = await self._rest.call("PATCH", path, ids, body)
        else:
            body = {**body, "flags": _EPHEMERAL}
            sent = await self._rest.call("POST", "/webhooks/{webhook_id}/{webhook_token}", ids, body)
        return Receipt(message_id=text(sent, "id"))

    async def edit(self, address: Address, message_id: str, piece: Piece) -> None:
        changed: dict[str, Any] = {
            "content": piece.get("content", ""),
            "components": piece.get("components", []),
            "allowed_mentions": _NO_MENTIONS,
            "flags": NO_EMBEDS,
        }
        await self._rest.call("PATCH", _MESSAGE, _ids(address, message_id), changed)

    async def typing(self, address: Address) -> None:
        await self._rest.call("POST", "/channels/{channel_id}/typing", {"channel_id": address.chat_id})

    async def draft(
        self, address: Address, draft_id: str | None, text: str, *, reply_to: str | None = None, silent: bool = False
    ) -> str | None:
        piece = await off_the_loop(text, render_draft, text, silent=silent)
        if draft_id:
            await self.edit(address, draft_id, piece)
            return draft_id
        receipt = await self.send(address, {**piece, **reply(reply_to)})
        if not receipt.message_id:
            raise TryLater("Discord does not name the message that it has taken.", ambiguous=True)
        return receipt.message_id

    async def finish_draft(self, address: Address, draft_id: str, piece: Piece) -> Receipt | None:
        if "filename" in piece:
            return None
        try:
            await self.edit(address, draft_id, piece)
        except Undeliverable:
            return None
        return Receipt(message_id=draft_id)

    async def erase_draft(self, address: Address, draft_id: str) -> None:
        with suppress(DiscordRefusal):  # somebody has already deleted it
            await self._rest.call("DELETE", _MESSAGE, _ids(address, draft_id))

    async def react(self, address: Address, message_id: str, emoji: str | None) -> None:
        ids = {**_ids(address, message_id), "emoji": emoji or "👀"}
        await self._rest.call("PUT" if emoji else "DELETE", _REACTION, ids)

    async def answer_tap(self, tap_id: str, text: str = "") -> None:
        told = {"content": text, "flags": _EPHEMERAL, "allowed_mentions": _NO_MENTIONS}
        await self._acknowledge(tap_id, {"type": 4, "data": told} if text else {"type": 6})

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """Downloads the file. Its signed address is valid for a day; after that the message itself is asked for a new one."""
        where, _, url = attachment.ref.partition("|")
        data = await self._rest.download(url, limit, base=self._config.api_base)
        if data is None:
            channel, message_id, file_id = where.split("/")
            found = await self._rest.call("GET", _MESSAGE, {"channel_id": channel, "message_id": message_id})
            fresh = next((one for one in parts(found, "attachments") if text(one, "id") == file_id), None)
            data = await self._rest.download(text(fresh, "url"), limit, base=self._config.api_base) if fresh else None
        if data is None:
            raise Undeliverable(f"{attachment.name} is not there any more.")
        return data

    async def offer_commands(self, commands: Sequence[tuple[str, str]], users: Sequence[Sender]) -> None:  # noqa: ARG002
        """Writes the menu, only where it has changed. Everybody sees it; who may use it is decided at each call."""
        client = await self._rest.client()
        ids = {"application_id": client.application_id}
        wanted = [_command(name, about) for name, about in commands]
        present = await self._rest.call("GET", "/applications/{application_id}/commands", ids)
        if [_shape(as_object(one)) for one in present] != [_shape(one) for one in wanted]:
            await self._rest.call("PUT", "/applications/{application_id}/commands", ids, wanted)


def _ids(address: Address, message_id: str) -> dict[str, str]:
    return {"channel_id": address.chat_id, "message_id": message_id}


def _command(name: str, about: str) -> dict[str, Any]:
    option = {"type": 3, "name": "text", "description": "what follows the command", "required": False}
    return {"type": 1, "name": name, "description": about[:100], "options": [option], "contexts": [0, 1]}


def _shape(command: Any) -> tuple[str, str]:
    return text(command, "name"), text(command, "description")


async def _file(piece: Piece) -> tuple[str, bytes] | None:
    if "filename" not in piece:
        return None
    if "text" in piece:
        return piece["filename"], piece["text"].encode()
    return piece["filename"], await read_file(piece)
