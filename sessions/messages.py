"""The messages that adapters and the gateway exchange: incoming, outgoing, and the platform's receipt."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self

from sessions.keys import Address, Sender


class AttachmentKind(StrEnum):
    IMAGE = "image"
    VOICE = "voice"
    AUDIO = "audio"
    VIDEO = "video"
    FILE = "file"

    @classmethod
    def _missing_(cls, value: object) -> "AttachmentKind":  # noqa: ARG003  # a kind of a later version
        return cls.FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file of a message, from the adapter to the journal and out again. Adapters give the first five fields: `ref` is what they need
    to fetch it.

    Where it is, before the run fetches it: `platform` with `ref`, or `address` (fetched by us, and forgotten then). Afterwards `path`, or
    `gone`. `url`: an address that the model's endpoint follows itself. `part`: the kind of content part that the model has to get it as,
    with its `detail`. `of`: whose file it is when it belongs to a quoted message.
    """

    kind: AttachmentKind
    name: str
    mime: str = "application/octet-stream"
    size: int | None = None
    ref: str = ""
    path: str = ""
    platform: str = ""
    address: str = ""
    url: str = ""
    part: str | None = None
    detail: str | None = None
    of: str = ""
    gone: bool = False

    @property
    def is_waiting(self) -> bool:
        """True while it still has to be fetched."""
        return not (self.path or self.url or self.gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The message that a user replied to, or with `forwarded` passed on and has a word to say to. `attachments` are its files, but for
    our own.
    """

    message_id: str
    text: str = ""
    sender_name: str = ""
    from_us: bool = False
    attachments: tuple[Attachment, ...] = ()
    forwarded: bool = False


class InboundKind(StrEnum):
    MESSAGE = "message"
    EDIT = "edit"  # the user changed `message_id`; text is the new text
    TAP = "tap"  # a button under one of our messages; text is the button's data, message_id the card's
    MOVED = "moved"  # the chat has a new id: text; the address still names the first one
    JOINED = "joined"  # the sender has brought us into this group
    LEFT = "left"  # we were removed from this chat, or blocked by the sender
    DELETED = "deleted"  # the user took `message_id` back
    FAILED = "failed"  # our message `message_id`, which the platform had accepted, did not arrive; text says why
    HOME = "home"  # the sender has opened the bot's own page


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """One event of a platform in neutral words.

    `dedup_key` is the same whenever the platform sends the same event again. `mentioned`: it is meant for the bot (always so in a
    DM): a mention, a reply to the bot, a command for it. `mentions_other`: it is addressed to somebody else. The bot's own mention
    is already taken out of `text`, and so is the `@bot` of `/command@bot`. `same_as`: another id of the sender. `respond_to`: how
    the platform wants a command answered, to the sender alone. `private_reply`: the same for people without access, in a chat with others;
    empty where the platform has no way, and they are not answered at all. `in_thread` of JOINED: what is said here is said in threads.
    """

    dedup_key: str
    address: Address
    sender: Sender
    message_id: str
    text: str = ""
    kind: InboundKind = InboundKind.MESSAGE
    mentioned: bool = True
    mentions_other: bool = False
    by_reply: bool = False  # the one sign is that it replies to a message of the bot
    for_any_bot: bool = False  # the one sign that it is meant for the bot is a command that names none
    in_thread: bool = False  # it names nobody, in a thread: where we have spoken in that thread, it is meant for us
    quote: Quote | None = None
    forwarded_from: str = ""  # whose words these are when the sender only passed them on
    attachments: tuple[Attachment, ...] = ()
    cut_off: bool = False  # it is as long as a message can be, so the rest probably comes in another
    album: str = ""  # files that were sent together, and come one by one, share this name
    chat_title: str = ""
    parent_chat: str = ""  # the id of the chat that this one is a thread of, where a thread is a chat of its own
    sent_at: int = 0
    tap_id: str = ""  # what the platform wants acknowledged after a tap
    same_as: str = ""
    respond_to: str = ""
    private_reply: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    label: str
    data: str  # at most 64 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a message for a chat says: Markdown text, buttons below it, files beside it. `silent`: no notification. `spoken_from`: the text
    from this character on is also sent as a voice message; the delivery makes that of it, before an adapter gets the message.
    """

    text: str = ""
    buttons: tuple[Button, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    silent: bool = False
    spoken_from: int | None = None

    def for_ask(self, number: int) -> Self:
        """Returns the card with the number of its ask in the data of its buttons, in place of `{ask}`."""
        return replace(
            self, buttons=tuple(replace(each, data=each.data.replace("{ask}", str(number))) for each in self.buttons)
        )

    def outbound(self, address: Address, *, reply_to: str | None, respond_to: str = "") -> "Outbound":
        """Returns the message for the adapter."""
        own = {each.name: getattr(self, each.name) for each in fields(Content)}
        return Outbound(address=address, reply_to=reply_to, respond_to=respond_to, **own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound(Content):
    """One message for a chat. `respond_to`: the command that it answers, to whoever gave it alone."""

    address: Address
    reply_to: str | None = None
    respond_to: str = ""


Piece = Mapping[str, Any]
"""One call to a platform, rendered and small enough for it, as JSON. Stored before it is sent, so a restart sends the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The platform has accepted the message under this id."""

    message_id: str
