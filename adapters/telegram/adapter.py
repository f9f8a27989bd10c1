"""Telegram through python-telegram-bot's client, with a poll loop, normalizer and renderer of our own."""

import asyncio
import hmac
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from telegram import (
    Bot,
    BotCommand,
    BotCommandScope,
    BotCommandScopeAllPrivateChats,
    BotCommandScopeChat,
    ReactionTypeEmoji,
    Update,
    User,
)

from adapters.base import (
    Deliver,
    Pace,
    ReceivesWebhooks,
    ShowsDrafts,
    TryLater,
    Unauthorized,
    Undeliverable,
    WebhookReply,
)
from adapters.http import MALFORMED
from adapters.telegram.config import TelegramConfig
from adapters.telegram.normalize import normalize, unreadable
from adapters.telegram.outgoing import OutgoingCalls
from adapters.telegram.polling import Poll, update_id
from adapters.telegram.render import render, render_draft, reply_parameters
from adapters.telegram.transport import Connections, TelegramRefusal, Translation
from adapters.text import off_the_loop
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Attachment, Inbound, Outbound, Piece, Receipt

ALLOWED_UPDATES = [
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "my_chat_member",
]
SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105  # a header's name
_WEBHOOK_CHECK = 60.0
_ALBUMS = 100
_LONGEST_ALERT = 200
_NO_EMPTY_DRAFT = ("text is empty", "text_empty", "text must be non-empty", "method not found")

log = structlog.get_logger(__name__)


class Telegram(ShowsDrafts, ReceivesWebhooks):
    platform: str = Platform.TELEGRAM
    reports_success = True
    pace = Pace(per_second=30, dm=1, group=1, edit=1.5, group_per_minute=20)
    typing_every = 4.0
    draft_renew_every = 20.0  # a draft in a DM fades after 30 s

    def __init__(
        self,
        config: TelegramConfig,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        poll_seconds: int = 50,
    ) -> None:
        logging.getLogger("telegram").setLevel(logging.WARNING)  # its chattier lines hold the token
        logging.getLogger("telegram.request").setLevel(logging.CRITICAL)  # tracebacks in an outage, which is raised too
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._translation = Translation(config.token.get_secret_value())
        base = config.api_base.rstrip("/")
        # The poll has a connection of its own: it is open all the time, and is thrown away whenever it fails.
        self._calls, self._polls = Connections(base, 16), Connections(base, 1)
        with self._translation():
            self._bot = Bot(
                config.token.get_secret_value(), f"{base}/bot", f"{base}/file/bot", self._calls, self._polls
            )
        self._out = OutgoingCalls(self._bot, self._translation)
        self._poll = Poll(
            self._bot.base_url,
            self._polls,
            self._translation,
            allowed=json.dumps(ALLOWED_UPDATES),
            seconds=poll_seconds,
            sleep=sleep,
        )
        self._me: User | None = None
        self._offered: set[str] = set()
        self._shows_thinking = True
        self._albums: deque[str] = deque(maxlen=_ALBUMS)

    async def run(self, deliver: Deliver) -> None:
        await self._identify()
        if self._config.mode == "webhook":
            await self._keep_webhook()
        with self._translation():
            # getUpdates answers 409 as long as a webhook is set.
            await self._bot.delete_webhook()  # what is pending stays pending
        await self._poll.run(partial(self._take, deliver), self.note_success)

    async def close(self) -> None:
        """After the last send."""
        await self._calls.shutdown()
        await self._polls.shutdown()

    async def check(self) -> str:
        me = await self._identify()
        return f"@{me.username} ({me.full_name})"

    def chat_link(self, code: str) -> str:
        return f"https://t.me/{self._me.username}?start={code}" if self._me else ""

    def hears_everything(self) -> bool:
        return self._me is not None and bool(self._me.can_read_all_group_messages)

    def setup_notes(self) -> Sequence[str]:
        if self.hears_everything():
            return ()
        return ("In groups it reads only mentions and replies (privacy mode). That is right for most.",)

    async def receive(self, headers: Mapping[str, str], body: bytes, deliver: Deliver) -> WebhookReply | None:
        given = next((value for name, value in headers.items() if name.lower() == SECRET_HEADER), "")
        secret = self._config.webhook_secret.get_secret_value()
        # Without a secret everything is refused: anybody could write as Telegram.
        if not secret or not hmac.compare_digest(given.encode(), secret.encode()):
            return None
        self.note_success()
        try:
            item = json.loads(body)
        except (ValueError, RecursionError) as error:
            log.warning("telegram.update_skipped", update_id=None, reason=type(error).__name__)
            return WebhookReply()
        await self._take(deliver, item)
        return WebhookReply()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        return render(outbound)

    async def send(self, address: Address, piece: Piece) -> Receipt:
        return await self._out.send(address, piece)

    async def edit(self, address: Address, message_id: str, piece: Piece) -> None:
        await self._out.edit(address, message_id, piece)

    async def typing(self, address: Address) -> None:
        """Shows an empty draft in a DM, which clients show as thinking; typing elsewhere, and where Telegram does not know that."""
        if address.kind is ChatKind.DM and self._shows_thinking:
            try:
                await self._out.draft_in_dm(address, {"text": "", "entities": []})
            except TelegramRefusal as refusal:  # which may be about this chat alone
                self._shows_thinking = not (
                    refusal.reason.startswith("not found") or any(words in refusal.reason for words in _NO_EMPTY_DRAFT)
                )
            except TryLater as error:
                if error.after:
                    raise
                # This one method may be broken. As a probe it must not hold up the chat while others work.
                log.debug("telegram.no_thinking", error=str(error))
            else:
                return
        await self._out.typing(address)

    async def draft(
        self, address: Address, draft_id: str | None, text: str, *, reply_to: str | None = None, silent: bool = False
    ) -> str | None:
        piece = await off_the_loop(text, render_draft, text)
        if address.kind is ChatKind.DM:
            await self._out.draft_in_dm(address, piece)
            return None
        if draft_id:
            await self.edit(address, draft_id, piece)
            return draft_id
        receipt = await self.send(address, {**piece, **reply_parameters(reply_to), "disable_notification": silent})
        if not receipt.message_id:
            raise TryLater("Telegram does not name the message that it has taken.", ambiguous=True)
        return receipt.message_id

    async def finish_draft(self, address: Address, draft_id: str, piece: Piece) -> Receipt | None:
        if piece["method"] != "sendMessage":
            return None
        try:
            await self.edit(address, draft_id, piece)
        except Undeliverable:
            return None
        return Receipt(message_id=draft_id)

    async def erase_draft(self, address: Address, draft_id: str) -> None:
        with suppress(TelegramRefusal), self._out.calling(address):  # refused: somebody has already deleted it
            await self._bot.delete_message(self._out.chat_id(address), int(draft_id))

    async def react(self, address: Address, message_id: str, emoji: str | None) -> None:
        reaction = [ReactionTypeEmoji(emoji)] if emoji else []
        with self._out.calling(address):
            await self._bot.set_message_reaction(self._out.chat_id(address), int(message_id), reaction)

    async def answer_tap(self, tap_id: str, text: str = "") -> None:
        with self._translation():
            await self._bot.answer_callback_query(tap_id, text[:_LONGEST_ALERT] or None, show_alert=bool(text))

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        with self._translation():
            file = await self._bot.get_file(attachment.ref)
            if (
                file.file_size or 0
            ) > limit:  # before the download; the size is a promise, so it is checked again after it
                raise Undeliverable(f"{attachment.name} is larger than {limit} bytes.")
            data = bytes(await file.download_as_bytearray())
        if len(data) > limit:
            raise Undeliverable(f"{attachment.name} is larger than {limit} bytes.")
        return data

    async def offer_commands(self, commands: Sequence[tuple[str, str]], users: Sequence[Sender]) -> None:
        """Shows the menu to these users only. One who has never written to the bot has no chat yet, and gets it another time."""
        menu = [BotCommand(name, description) for name, description in commands]
        ids = {user.id for user in users}
        with self._translation():
            await self._bot.delete_my_commands()  # the menu for everybody, which people without access would see
        for user_id in sorted(self._offered - ids):
            with suppress(TelegramRefusal), self._translation():
                await self._bot.delete_my_commands(scope=_scope(user_id))
        for user_id in sorted(ids):
            with suppress(TelegramRefusal), self._translation():
                await self._bot.set_my_commands(menu, scope=_scope(user_id))
        self._offered = ids

    async def _identify(self) -> User:
        try:
            with self._translation():
                self._me = await self._bot.get_me()
        except TelegramRefusal:  # 404; a token that is merely out of date gets a 401
            raise Unauthorized(
                "Telegram does not know this bot (404). Check platforms.telegram.token and api_base."
            ) from None
        return self._me

    async def _keep_webhook(self) -> None:
        """Sets the webhook, and sets it again when another program took it away."""
        config = self._config
        present = ""
        while True:
            with self._translation():
                if present != config.webhook_url:
                    await self._bot.set_webhook(
                        config.webhook_url,
                        secret_token=config.webhook_secret.get_secret_value(),
                        allowed_updates=ALLOWED_UPDATES,
                    )
            self.note_success()
            await self._sleep(_WEBHOOK_CHECK)
            try:
                with self._translation():
                    present = (await self._bot.get_webhook_info()).url
            except TelegramRefusal as refusal:  # it cannot be looked at here, which is no reason to receive nothing
                log.debug("telegram.webhook_unknown", error=str(refusal))
                await self._identify()
                present = config.webhook_url

    async def _take(self, deliver: Deliver, item: Any) -> None:
        me = self._me or await self._identify()
        try:
            found = normalize(Update.de_json(item, self._bot), me)
        except MALFORMED as error:
            log.warning("telegram.update_skipped", update_id=update_id(item), reason=type(error).__name__)
            found = unreadable(item, me)
        for inbound in found:
            await deliver(self._with_its_album(inbound))

    def _with_its_album(self, inbound: Inbound) -> Inbound:
        """Marks all pictures of an album as meant for the bot: only one of them has the text, and with it the mention."""
        if inbound.album and inbound.mentioned:
            self._albums.append(inbound.album)
        elif inbound.album in self._albums:
            return replace(inbound, mentioned=True, mentions_other=False)
        return inbound


def _scope(user_id: str) -> BotCommandScope:
    return BotCommandScopeAllPrivateChats() if user_id == "*" else BotCommandScopeChat(int(user_id))
