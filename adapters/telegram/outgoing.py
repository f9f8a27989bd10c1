"""Sends and edits messages by the Bot API. What Telegram refuses for its formatting is sent again as plain text."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import structlog
from telegram import Bot, InputFile
from telegram.constants import ChatAction

from adapters.base import TryLater, Undeliverable, read_file
from adapters.http import text
from adapters.telegram.transport import Moved, TelegramRefusal, Translation
from sessions.keys import Address, ChatKind
from sessions.messages import Piece, Receipt

# What Telegram's descriptions contain when it refuses the formatting of a text; there are no codes.
_FORMATTING = ("parse entities", "entity_", "entities_too")
_NO_PICTURE = ("photo_", "image_", "voice_")  # about what it does not take as a picture or a voice message
_EDITABLE = {"entities", "reply_markup", "link_preview_options"}
_DIRECT_TOPIC = "direct_messages_topic_id"
_FILES = {"sendDocument": "document", "sendPhoto": "photo", "sendVoice": "voice"}
_NOT_FOR_TELEGRAM = {"method", "text", "path", "content", "filename"}

log = structlog.get_logger(__name__)


class OutgoingCalls:
    """Calls of one bot into its chats. A group that became a supergroup is called by its new id from then on."""

    def __init__(self, bot: Bot, translation: Translation) -> None:
        self._bot = bot
        self._translation = translation
        self._supergroups: dict[str, str] = {}

    async def send(self, address: Address, piece: Piece) -> Receipt:
        """Sends the piece. A second call follows only where Telegram refused how it is sent, and so has sent nothing."""
        try:
            message_id = await self._send(address, piece)
        except TelegramRefusal as refusal:
            simpler = _simpler(piece, refusal)
            if simpler is None:
                raise
            log.warning("telegram.sent_plain", reason=str(refusal))
            message_id = await self._send(address, simpler)
        return Receipt(message_id=message_id)

    async def edit(self, address: Address, message_id: str, piece: Piece) -> None:
        try:
            await self._edit(address, message_id, piece)
        except TelegramRefusal as refusal:
            if "not modified" in refusal.reason:  # it shows this text already: an earlier try has arrived
                return
            if not _is_formatting(refusal):
                raise
            await self._edit(address, message_id, _plain(piece))

    async def draft_in_dm(self, address: Address, piece: Piece) -> None:
        """Shows the one draft of a DM, which the next message replaces. A draft that may have arrived needs no care: nothing is left of
        it.
        """
        try:
            # One id for all: a DM shows one draft, and the next message takes its place.
            given = {"draft_id": 1, "text": piece["text"], "entities": piece["entities"]}
            await self._call(address, "sendMessageDraft", {**self.to(address), **given})
        except TryLater as error:
            raise TryLater(str(error), after=error.after) from None

    async def typing(self, address: Address) -> None:
        to = self.to(address)
        to.pop(_DIRECT_TOPIC, None)  # it is shown to all of them, or not at all
        await self._call(address, "sendChatAction", {**to, "action": ChatAction.TYPING})

    async def _send(self, address: Address, piece: Piece) -> str:
        """Returns the id of the message; empty where Telegram has taken the message, and names none."""
        method = piece["method"]
        given = {key: value for key, value in piece.items() if key not in _NOT_FOR_TELEGRAM}
        if method == "sendMessage":
            given["text"] = piece["text"]
        elif method in _FILES:
            given[_FILES[method]] = InputFile(await read_file(piece), filename=piece["filename"])
        else:
            raise Undeliverable(f"No way to send a piece of kind {method!r} to Telegram.")
        return text(await self._call(address, method, {**self.to(address), **given}), "message_id")

    async def _edit(self, address: Address, message_id: str, piece: Piece) -> None:
        extra = {key: value for key, value in piece.items() if key in _EDITABLE}
        place = {"chat_id": self.chat_id(address), "message_id": int(message_id)}
        await self._call(address, "editMessageText", {**place, "text": piece["text"], **extra})

    async def _call(self, address: Address, method: str, given: dict[str, Any]) -> Any:
        """Returns the raw result. The library's own methods parse the message in it; where that fails, it was sent all the same."""
        with self.calling(address):
            return await self._bot._post(method, given)  # pyright: ignore[reportPrivateUsage]

    @contextmanager
    def calling(self, address: Address) -> Generator[None]:
        try:
            with self._translation():
                yield
        except Moved as moved:  # the caller tries again, and then goes to the new id
            self._supergroups[address.chat_id] = moved.chat_id
            raise

    def to(self, address: Address) -> dict[str, Any]:
        to = {"chat_id": self.chat_id(address)}
        if address.thread_id is not None:
            # A channel has no topics but those of its direct messages, one for each person.
            topic = _DIRECT_TOPIC if address.kind is ChatKind.CHANNEL else "message_thread_id"
            to[topic] = int(address.thread_id)
        return to

    def chat_id(self, address: Address) -> int:
        return int(self._supergroups.get(address.chat_id, address.chat_id))


def _is_formatting(refusal: TelegramRefusal) -> bool:
    return any(words in refusal.reason for words in _FORMATTING)


def _simpler(piece: Piece, refusal: TelegramRefusal) -> Piece | None:
    """Returns the piece without its formatting, or as a mere file; None: there is no simpler way."""
    if _is_formatting(refusal):
        return _plain(piece)
    if piece["method"] in {"sendPhoto", "sendVoice"} and any(words in refusal.reason for words in _NO_PICTURE):
        return {**piece, "method": "sendDocument"}
    return None


def _plain(piece: Piece) -> Piece:
    return {key: value for key, value in piece.items() if key not in {"entities", "caption_entities"}}
