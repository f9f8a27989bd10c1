"""WhatsApp through Meta's Cloud API, over plain HTTP.

`receive` checks the signature of each webhook and takes its events; `run` only checks from time to time that the access token still works.
"""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import structlog

from adapters.base import Deliver, Pace, ReceivesWebhooks, Unauthorized, Undeliverable, WebhookReply, read_file
from adapters.http import MALFORMED, parts, text
from adapters.whatsapp.client import CloudApi, WhatsAppRefusal
from adapters.whatsapp.config import WhatsAppConfig
from adapters.whatsapp.normalize import events, normalize
from adapters.whatsapp.render import render
from sessions.keys import Address, ChatKind, Platform, Sender, whatsapp_id
from sessions.messages import Attachment, InboundKind, Outbound, Piece, Receipt

SIGNATURE = "x-hub-signature-256"
_CHECK_SECONDS = 300.0
_LAST_KEPT = 10_000
_NOT_FOR_META = {"content", "filename", "path", "mime", "caption", "voice"}
_TEXT_REFUSED = {100, 131009}
"""Codes for a parameter that is not accepted."""

log = structlog.get_logger(__name__)


class WhatsApp(ReceivesWebhooks):
    """WhatsApp shows typing below a message that it knows; so the last one of every chat is remembered."""

    platform: str = Platform.WHATSAPP
    reports_success = True
    asks_before = True
    # Meta's own limit for one person, one in six seconds with 45 in reserve, is not counted here: it refuses with 131056, see `client.py`.
    pace = Pace(per_second=80, dm=0.2, group=0.2, edit=1.0)
    typing_every = 20.0  # it stays for 25 s

    def __init__(
        self,
        config: WhatsAppConfig,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._api = CloudApi(config.api_base, config.access_token.get_secret_value())
        self._number = config.phone_number_id
        self._last_messages: dict[str, str] = {}
        self._offered: Sequence[tuple[str, str]] = ()
        self._dialled = ""

    async def run(self, deliver: Deliver) -> None:  # noqa: ARG002  # Meta calls us
        while True:
            await self.check()
            self.note_success()
            await self._sleep(_CHECK_SECONDS)

    async def close(self) -> None:
        await self._api.close()

    async def check(self) -> str:
        try:
            found = await self._api.get(self._number, fields="display_phone_number,verified_name")
        except WhatsAppRefusal as error:
            raise Unauthorized(
                f"WhatsApp does not know the number with the id in platforms.whatsapp.phone_number_id. {error}"
            ) from None
        shown = str(found.get("display_phone_number", ""))
        self._dialled = "".join(each for each in shown if each.isdecimal())
        return f"{shown or self._number} ({found.get('verified_name', 'WhatsApp')})"

    def chat_link(self, code: str) -> str:
        return f"https://wa.me/{self._dialled}?text=%2Fstart%20{code}" if self._dialled else ""

    def setup_notes(self) -> Sequence[str]:
        return (
            "At Meta, WhatsApp → Configuration: register this callback URL with the verify token, subscribe to messages.",
        )

    def handshake(self, query: Mapping[str, str]) -> WebhookReply | None:
        wanted = self._config.verify_token.get_secret_value()
        given = query.get("hub.verify_token", "")
        if (
            query.get("hub.mode") != "subscribe"
            or not wanted
            or not hmac.compare_digest(given.encode(), wanted.encode())
        ):
            return None
        return WebhookReply(text=query.get("hub.challenge", ""))

    async def receive(self, headers: Mapping[str, str], body: bytes, deliver: Deliver) -> WebhookReply | None:
        """Delivers the events of a webhook. Returns None when the signature is wrong or no app secret is configured."""
        given = next((value for name, value in headers.items() if name.lower() == SIGNATURE), "")
        secret = self._config.app_secret.get_secret_value().encode()
        right = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
        if not secret or not hmac.compare_digest(given.encode(), right.encode()):
            return None
        self.note_success()
        try:
            payload = json.loads(body)
        except (ValueError, RecursionError) as error:
            log.warning("whatsapp.event_skipped", reason=type(error).__name__)
            return WebhookReply()
        for event, value in events(payload, self._number):
            await self._take(event, value, deliver)
        # 200 only now that everything is stored; Meta repeats what is answered otherwise, for days.
        return WebhookReply()

    async def _take(self, event: Mapping[str, Any], value: Mapping[str, Any], deliver: Deliver) -> None:
        try:
            found = normalize(event, value)
        except MALFORMED as error:
            log.warning("whatsapp.event_skipped", event_id=str(event.get("id")), reason=type(error).__name__)
            return
        for inbound in found:
            if inbound.kind in {InboundKind.MESSAGE, InboundKind.TAP}:
                chat = inbound.address.chat_id
                # Taken out and put in again, so that the chat that was silent longest is in front.
                self._last_messages.pop(chat, None)
                self._last_messages[chat] = inbound.dedup_key.removeprefix("wa:")
                if len(self._last_messages) > _LAST_KEPT:
                    del self._last_messages[next(iter(self._last_messages))]
            await deliver(inbound)

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        return render(outbound)

    async def send(self, address: Address, piece: Piece) -> Receipt:
        """A second call follows only where WhatsApp refused how it is sent, and so has taken nothing."""
        message = {**_to(address), **{key: value for key, value in piece.items() if key not in _NOT_FOR_META}}
        if "filename" in piece:
            data = await read_file(piece)
            media: dict[str, Any] = {"id": await self._api.upload(self._number, data, piece["filename"], piece["mime"])}
            if piece["type"] == "document":
                media["filename"] = piece["filename"]
            media |= {key: piece[key] for key in ("caption", "voice") if key in piece}
            message[piece["type"]] = media
        try:
            answer = await self._api.post(f"{self._number}/messages", message)
        except WhatsAppRefusal as refusal:
            simpler = _simpler(message) if refusal.code in _TEXT_REFUSED else None
            if simpler is None:
                raise
            log.warning("whatsapp.sent_plain", reason=str(refusal))
            answer = await self._api.post(f"{self._number}/messages", simpler)
        # Answered with success, so it was sent, whether or not its id can be read.
        return Receipt(message_id=next((text(sent, "id") for sent in parts(answer, "messages")), ""))

    async def typing(self, address: Address) -> None:
        """Shows typing below the last message, and marks that as read. Does nothing where nobody has written since the start."""
        if last := self._last_messages.get(address.chat_id):
            # Groups have no typing indicator.
            typing = {"typing_indicator": {"type": "text"}} if address.kind is ChatKind.DM else {}
            read = {"messaging_product": "whatsapp", "status": "read", "message_id": last, **typing}
            await self._api.post(f"{self._number}/messages", read)

    async def probe(self, address: Address) -> None:
        """Marks the last message of the chat as read; asks for our own number where none is known."""
        if last := self._last_messages.get(address.chat_id):
            read = {"messaging_product": "whatsapp", "status": "read", "message_id": last}
            await self._api.post(f"{self._number}/messages", read)
        else:
            await self._api.get(self._number, fields="id")

    async def react(self, address: Address, message_id: str, emoji: str | None) -> None:
        reaction = {"message_id": message_id, "emoji": emoji or ""}
        await self._api.post(f"{self._number}/messages", {**_to(address), "type": "reaction", "reaction": reaction})

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """Downloads the file in two steps: its address is good for five minutes."""
        found = await self._api.get(attachment.ref, phone_number_id=self._number)
        size = text(found, "file_size")
        if size.isdecimal() and int(size) > limit:
            raise Undeliverable(f"{attachment.name} is larger than {limit} bytes.")
        return await self._api.download(str(found.get("url") or ""), limit, trusted=self._is_metas)

    def _is_metas(self, url: str) -> bool:
        """Returns whether the address is Meta's: the token goes to no other host."""
        wanted, given = urlsplit(self._config.api_base), urlsplit(url)
        if (given.scheme, given.netloc) == (wanted.scheme, wanted.netloc):
            return True
        host = given.hostname or ""
        return given.scheme == "https" and host.endswith((".fbsbx.com", ".facebook.com", ".fbcdn.net", ".whatsapp.net"))

    async def offer_commands(self, commands: Sequence[tuple[str, str]], users: Sequence[Sender]) -> None:  # noqa: ARG002
        """Sets the one menu that WhatsApp has for everybody; what is chosen there is judged like what is typed."""
        if commands == self._offered:
            return
        menu = [{"command_name": name, "command_description": about} for name, about in commands]
        try:
            await self._api.post(f"{self._number}/conversational_automation", {"commands": menu})
        except (WhatsAppRefusal, Unauthorized) as error:  # the menu needs a permission that messages do not need
            log.info("whatsapp.no_menu", reason=str(error))
        self._offered = commands  # also after a refusal, which would be the same every hour


def _to(address: Address) -> dict[str, Any]:
    """A number or a group is `to`, a business-scoped id is `recipient`."""
    head = {"messaging_product": "whatsapp"}
    if address.kind is ChatKind.GROUP:
        return {**head, "recipient_type": "group", "to": address.chat_id}
    number = whatsapp_id(address.chat_id)
    whom = {"to": number} if number.isdecimal() else {"recipient": address.chat_id}
    return {**head, "recipient_type": "individual", **whom}


def _simpler(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the message without what is not needed: the quote; buttons, whose text says that words will do."""
    if message["type"] == "interactive":
        text = message["interactive"]["body"]["text"]
        rest = {key: value for key, value in message.items() if key != "interactive"}
        return {**rest, "type": "text", "text": {"body": text}}
    return {key: value for key, value in message.items() if key != "context"} if "context" in message else None
