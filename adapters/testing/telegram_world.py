# pyright: basic
"""People, chats and what everybody in them can see. User actions become updates, in the form in which Telegram sends them."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from adapters.testing.telegram_rules import utf16

Json = dict[str, Any]
_MARKS = re.compile(r"(?P<bot_command>(?<!\S)/\w+(?:@\w+)?)|(?P<mention>(?<!\w)@\w+)|(?P<url>https?://\S+)")


@dataclass(slots=True, eq=False)
class User:
    id: int
    name: str
    username: str = ""
    is_bot: bool = False

    def wire(self) -> Json:
        return {
            "id": self.id,
            "is_bot": self.is_bot,
            "first_name": self.name,
            **({"username": self.username} if self.username else {}),
        }


@dataclass(slots=True, eq=False)
class TelegramMessage:
    """`body` is its present form at the wire; `texts` every text it ever had."""

    id: int
    body: Json
    from_bot: bool
    texts: list[str] = field(default_factory=list)
    silent: bool = False
    deleted: bool = False
    reaction: str | None = None
    file: bytes | None = None

    @property
    def text(self) -> str:
        return self.texts[-1]

    @property
    def topic(self) -> int | None:
        return self.body.get("message_thread_id") if self.body.get("is_topic_message") else None

    @property
    def reply_to(self) -> int | None:
        return self.body.get("reply_to_message", {}).get("message_id")

    @property
    def labels(self) -> list[str]:
        return self.buttons

    @property
    def buttons(self) -> list[str]:
        return [key["text"] for row in self.body.get("reply_markup", {}).get("inline_keyboard", []) for key in row]

    def button_data(self, label: str) -> str:
        keys = (key for row in self.body["reply_markup"]["inline_keyboard"] for key in row)
        return next(key["callback_data"] for key in keys if key["text"] == label)


@dataclass(slots=True, eq=False)
class TelegramChat:
    id: int
    type: str
    title: str
    messages: dict[int, TelegramMessage] = field(default_factory=dict)
    topics: dict[int, Json] = field(default_factory=dict)
    drafts: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    bot_is_out: bool = False
    moved_to: int | None = None
    direct_messages: bool = False

    def wire(self) -> Json:
        forum = {"is_forum": True} if self.topics and self.type == "supergroup" else {}
        forum |= {"is_direct_messages": True} if self.direct_messages else {}
        return {
            "id": self.id,
            "type": self.type,
            "first_name" if self.type == "private" else "title": self.title,
            **forum,
        }


class World:
    def __init__(self, bot: User, clock: Callable[[], float]) -> None:
        self.bot = bot
        self.clock = clock
        self.chats: dict[int, TelegramChat] = {}
        self.files: dict[str, bytes] = {}
        self.pending: list[Json] = []
        self.news = asyncio.Event()
        self.taps_open: dict[str, str | None] = {}
        self._numbers = count(1)
        self._updates = count(10_001)

    def user(self, user_id: int, name: str, username: str = "", *, is_bot: bool = False) -> User:
        return User(user_id, name, username, is_bot)

    def dm(self, user: User) -> TelegramChat:
        return self.chats.setdefault(user.id, TelegramChat(user.id, "private", user.name))

    def group(
        self, chat_id: int = -1001, title: str = "Group", *, topics: Sequence[int] = (), kind: str = "supergroup"
    ) -> TelegramChat:
        chat = self.chats.setdefault(chat_id, TelegramChat(chat_id, kind, title))
        for topic in topics:
            created = {"message_id": topic, "chat": chat.wire(), "date": self._now(), "from": self.bot.wire()}
            chat.topics[topic] = {**created, "forum_topic_created": {"name": f"Topic {topic}", "icon_color": 7322096}}
        return chat

    def channel(self, chat_id: int = -1009, title: str = "News") -> TelegramChat:
        return self.chats.setdefault(chat_id, TelegramChat(chat_id, "channel", title))

    def chat(self, chat_id: int | str) -> list[TelegramMessage]:
        """What users of this chat see: every message that is not deleted."""
        return [message for message in self.chats[int(chat_id)].messages.values() if not message.deleted]

    def answers(self, chat_id: int | str) -> list[str]:
        """The present texts of the bot's own messages."""
        return [message.text for message in self.chat(chat_id) if message.from_bot]

    def person(self, user_id: int | str, name: str) -> User:
        """The same as `user`, in the words of the other fakes."""
        return self.user(int(user_id), name)

    def says(self, room: TelegramChat, person: User, text: str = "", **more: Any) -> TelegramMessage:
        """The same as `user_says`, in the words of the other fakes."""
        return self.user_says(room, person, text, **more)

    def tap(self, room: TelegramChat, person: User, message: TelegramMessage, label: str) -> str:  # noqa: ARG002  # the message knows its chat
        """The same as `taps`, in the words of the other fakes."""
        return self.taps(person, message, label)

    def visible(self, room: TelegramChat) -> list[TelegramMessage]:
        return self.chat(room.id)

    @staticmethod
    def is_bots(message: TelegramMessage) -> bool:
        return message.from_bot

    def user_says(
        self,
        chat: TelegramChat,
        user: User,
        text: str = "",
        *,
        reply_to: TelegramMessage | None = None,
        topic: int | None = None,
        document: tuple[str, bytes, str] | None = None,
        voice: bytes | None = None,
        photo: bytes | None = None,
        **more: Any,
    ) -> TelegramMessage:
        """`more` goes into the message as it stands, for everything that has no parameter here."""
        media = self._media(document, voice, photo)
        marks = auto_entities(text)
        kind = "caption" if media else "text"
        body: Json = {kind: text} if text else {}
        if marks:
            body["caption_entities" if media else "entities"] = marks
        message = self.post(chat, user, {**body, **media, **more}, text=text, reply_to=reply_to, topic=topic)
        self.update(**{"channel_post" if chat.type == "channel" else "message": message.body})
        return message

    def edits(self, chat: TelegramChat, message: TelegramMessage, text: str) -> None:
        message.texts.append(text)
        message.body = {**message.body, "text": text, "entities": auto_entities(text), "edit_date": self._now()}
        self.update(**{"edited_channel_post" if chat.type == "channel" else "edited_message": message.body})

    def taps(self, user: User, message: TelegramMessage, label: str) -> str:
        """Returns the id under which the bot has to acknowledge it."""
        tap_id = str(next(self._numbers) + 5_000_000_000)
        self.taps_open[tap_id] = None
        query = {
            "id": tap_id,
            "from": user.wire(),
            "message": message.body,
            "chat_instance": "1",
            "data": message.button_data(label),
        }
        self.update(callback_query=query)
        return tap_id

    def adds(self, user: User, chat: TelegramChat) -> None:
        """The bot is a member of this chat now."""
        chat.bot_is_out = False
        self._becomes(chat, user, "left", "member")

    def kick(self, chat: TelegramChat, user: User | None = None) -> None:
        """It was removed from a group, or blocked in a DM."""
        chat.bot_is_out = True
        self._becomes(chat, user or self.user(chat.id if chat.type == "private" else 1, "Admin"), "member", "kicked")

    def _becomes(self, chat: TelegramChat, user: User, before: str, after: str) -> None:
        old, new = ({"status": status, "user": self.bot.wire()} for status in (before, after))
        if after == "kicked":
            new["until_date"] = 0
        change = {"chat": chat.wire(), "from": user.wire(), "date": self._now()}
        self.update(my_chat_member={**change, "old_chat_member": old, "new_chat_member": new})

    def migrate(self, chat: TelegramChat, new_id: int) -> TelegramChat:
        """The group becomes a supergroup: a service message in each, and the old one takes nothing any more."""
        new = self.group(new_id, chat.title)
        chat.moved_to = new_id
        someone = self.user(1, "Admin")
        self.update(message=self.post(chat, someone, {"migrate_to_chat_id": new_id}).body)
        self.update(message=self.post(new, someone, {"migrate_from_chat_id": chat.id}).body)
        return new

    def update(self, **content: Any) -> Json:
        item = {"update_id": next(self._updates), **content}
        self.pending.append(item)
        self.news.set()
        return item

    def poison(self) -> Json:
        return self.update(message={"message_id": "seven", "chat": "nonsense", "date": None})

    def double(self) -> None:
        """The last update comes once more, under the same number."""
        self.pending.append(self.pending[-1])

    def reorder(self) -> None:
        self.pending.reverse()

    def post(
        self,
        chat: TelegramChat,
        sender: User,
        body: Json,
        *,
        text: str = "",
        reply_to: TelegramMessage | None = None,
        topic: int | None = None,
        **state: Any,
    ) -> TelegramMessage:
        number = next(self._numbers)
        head: Json = {"message_id": number, "chat": chat.wire(), "date": self._now()}
        head |= {"sender_chat": chat.wire()} if chat.type == "channel" else {"from": sender.wire()}
        if topic is not None:
            head |= {"message_thread_id": topic, "is_topic_message": True, "reply_to_message": chat.topics[topic]}
        if reply_to is not None:
            head["reply_to_message"] = {key: value for key, value in reply_to.body.items() if key != "reply_to_message"}
            if topic is None and chat.type == "supergroup":
                head["message_thread_id"] = reply_to.id  # so does Telegram, although it is no topic
        message = TelegramMessage(number, {**head, **body}, sender is self.bot, [text], **state)
        chat.messages[number] = message
        return message

    def keep_file(self, data: bytes) -> str:
        file_id = f"file-{next(self._numbers)}"
        self.files[file_id] = data
        return file_id

    def _media(self, document: tuple[str, bytes, str] | None, voice: bytes | None, photo: bytes | None) -> Json:
        if document is not None:
            name, data, mime = document
            return {"document": {**self._file(data), "file_name": name, "mime_type": mime}}
        if voice is not None:
            return {"voice": {**self._file(voice), "duration": 2, "mime_type": "audio/ogg"}}
        if photo is not None:
            small, large = self._file(photo[:1]), self._file(photo)
            return {"photo": [{**small, "width": 90, "height": 60}, {**large, "width": 1280, "height": 853}]}
        return {}

    def _file(self, data: bytes) -> Json:
        file_id = self.keep_file(data)
        return {"file_id": file_id, "file_unique_id": f"u-{file_id}", "file_size": len(data)}

    def _now(self) -> int:
        return 1_790_000_000 + int(self.clock())


def auto_entities(text: str) -> list[Json]:
    """What Telegram's clients mark by themselves."""
    return [
        {"type": match.lastgroup, "offset": len(utf16(text[: match.start()])) // 2, "length": len(utf16(match[0])) // 2}
        for match in _MARKS.finditer(text)
    ]
