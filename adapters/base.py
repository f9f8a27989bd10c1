"""The contract between a platform's adapter and the gateway. Whoever writes an adapter reads this file and nothing else."""

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sessions.keys import Address, Sender
from sessions.messages import Attachment, Button, Inbound, Outbound, Piece, Receipt

Deliver = Callable[[Inbound], Awaitable[None]]
"""Returns once the message is safely stored (or was already). Only then may the adapter acknowledge to its platform."""


class DeliveryError(Exception):
    """Base of what `send` and the capabilities may raise. `str()` is a sentence for the operator and never holds a secret."""


class TryLater(DeliveryError):
    """The platform asks to wait, or could not be reached. `ambiguous`: the message may have arrived nevertheless."""

    def __init__(self, message: str, *, after: float | None = None, ambiguous: bool = False) -> None:
        super().__init__(message)
        self.after = after
        self.ambiguous = ambiguous


class Undeliverable(DeliveryError):
    """This message will never arrive: the chat is gone, the bot was removed, the content is refused."""


class Unauthorized(DeliveryError):
    """The credentials are not accepted. Nothing works until the operator changes them."""


async def read_file(piece: Piece) -> bytes:
    """Returns the data of a piece's file: the file at its `path`, or else its `content`. Raises Undeliverable."""
    import asyncio  # 15 ms that a command without adapters does not need

    if "path" not in piece:
        return piece["content"].encode()
    try:
        return await asyncio.to_thread(Path(piece["path"]).read_bytes)
    except OSError as error:
        raise Undeliverable(f"The file {piece['filename']} cannot be read: {error.strerror}.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What the platform allows, in seconds between two calls. The delivery keeps it for everything that is sent."""

    per_second: float  # calls to the whole platform
    dm: float  # between two calls to one DM
    group: float  # between two calls to one group or channel
    edit: float  # between two edits in one chat
    group_per_minute: int | None = None


class Adapter:
    """One platform. An adapter has `run`, `render` and `send`; of the rest it has what its platform can: what it leaves out does not happen
    in the chat. What else a platform may be able to do are the classes below, which are inherited in place of this one.

    `render` is pure. `send` sends once: a second call only where the platform has refused the first, and so has taken nothing; uploads may come
    before it. It never retries what may have arrived, and raises only the DeliveryError family.
    """

    platform: str  # the name of its section in the configuration
    pace: Pace
    typing_every: float | None = None
    """Seconds after which typing has to be shown again; None: the platform shows no typing."""
    reports_success = False
    """True: it calls `note_success` at every sign of life of the platform, and counts as connected only then; others do when `run` begins."""

    _clock: Callable[[], float] = time.time
    _last_success: float | None = None
    _tell_success: Callable[[], None] | None = None

    async def run(self, deliver: Deliver) -> None:
        """Receives until cancelled. Raises DeliveryError when the connection cannot go on; the gateway calls it again after a pause, after
        `after` seconds at the earliest where a TryLater says so.
        """
        raise NotImplementedError

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """Returns the calls that deliver this message, each within the platform's limits."""
        raise NotImplementedError

    async def send(self, address: Address, piece: Piece) -> Receipt:
        raise NotImplementedError

    async def close(self) -> None:
        """Closes all connections. Called after the last send."""

    # --- in the chat ---

    async def typing(self, address: Address) -> None:
        """Shows that an answer is being written."""

    async def react(self, address: Address, message_id: str, emoji: str | None) -> None:
        """Sets our one reaction on a message; None removes it."""

    async def edit(self, address: Address, message_id: str, piece: Piece) -> None:
        """Replaces the message. Doing it again does no harm."""

    async def answer_tap(self, tap_id: str, text: str = "") -> None:
        """Tells the platform that the tap of a button has arrived. `text`: what whoever tapped is told, alone."""

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:  # noqa: ARG002
        """Returns the file. Raises Undeliverable when it is gone or larger than `limit` bytes."""
        raise Undeliverable(f"{attachment.name} cannot be fetched: the adapter of {self.platform} fetches no files.")

    @property
    def can_probe(self) -> bool:
        """Whether `probe` makes a call."""
        return self.typing_every is not None

    async def probe(self, address: Address) -> None:
        """Makes a harmless call to this chat, which shows whether a message would get through."""
        await self.typing(address)

    async def offer_commands(self, commands: Sequence[tuple[str, str]], users: Sequence[Sender]) -> None:
        """Puts (name, description) into the platform's own command menu, for these users only where the platform can."""

    # --- for the operator ---

    async def check(self) -> str:
        """Returns who we are on the platform, as a human would say it. Raises Unauthorized or TryLater."""
        return ""

    def setup_notes(self) -> Sequence[str]:
        """Returns what is left to do on the platform, or good to know of its settings, a sentence each. Called after `check`."""
        return ()

    def hears_everything(self) -> bool:
        """Returns whether it is given all that is said in a group, or mentions and replies alone. Called after `check`."""
        return True

    def chat_link(self, code: str) -> str:  # noqa: ARG002
        """Returns the address that opens a chat with the bot, in which the greeting and `code` are typed in already. Called after `check`;
        empty before, and where there is none.
        """
        return ""

    def note_success(self) -> None:
        """Notes that the platform talks to us."""
        self._last_success = self._clock()
        if self._tell_success is not None:
            self._tell_success()

    def last_success(self) -> float | None:
        """Returns the wall-clock seconds of the last proof that the platform talks to us; None before the first."""
        return self._last_success

    def on_success(self, tell: Callable[[], None]) -> None:
        """Sets the function that is called at every such proof."""
        self._tell_success = tell


class ShowsDrafts(Adapter, ABC):
    """A live preview of an answer that is still growing. Drafts may be lost. The final text takes the place of the preview (`finish_draft`), or is sent by `send`."""

    draft_renew_every = float("inf")
    """Seconds after which a preview has to be shown again, where it fades."""

    @abstractmethod
    async def draft(
        self, address: Address, draft_id: str | None, text: str, *, reply_to: str | None = None, silent: bool = False
    ) -> str | None:
        """Shows or changes the preview. Returns the id to pass next time; None where previews vanish by themselves when the message comes,
        so that nobody has to finish or erase them. The first one of an answer notifies people as a message does, because the edits by
        which it grows do not; `silent`: it only says that somebody works, and notifies nobody. After an ambiguous TryLater from the first
        call no other preview is begun: there may be one already, which nobody could erase.
        """

    @abstractmethod
    async def finish_draft(self, address: Address, draft_id: str, piece: Piece) -> Receipt | None:
        """Turns the preview into the final message. Returns None when it cannot become this one, which must be sent then. Doing it again
        does no harm.
        """

    @abstractmethod
    async def erase_draft(self, address: Address, draft_id: str) -> None: ...


class Activity(StrEnum):
    WORKING = "working"
    WAITING = "waiting"  # for an answer of a person
    IDLE = "idle"


class ShowsStatus(Adapter, ABC):
    """The platform shows what the bot does until it is told something else, or until `status_lasts` seconds are over. IDLE or
    WAITING is told at every end of a run, by the next process if need be."""

    status_every: float
    status_lasts: float

    @abstractmethod
    async def status(self, address: Address, activity: Activity, text: str = "") -> None:
        """Shows the status beside this chat. `text`: what the agent works on, in some words."""


class SendsOnce(Adapter, ABC):
    """The platform remembers the key of a message for `remembers_for` seconds, and does not post another one with the same key."""

    remembers_for: float

    @abstractmethod
    async def send_once(self, address: Address, piece: Piece, key: str) -> Receipt:
        """Sends as `send` does, with a key that stays the same whenever this message is sent again."""


class CatchesUp(Adapter, ABC):
    """The platform keeps no events for a client that is away, but lets it read what was said meanwhile."""

    @abstractmethod
    def catch_up(self, since: int, chats: Sequence[Address], users: Sequence[Sender]) -> None:
        """Says, before `run`, up to where everything was delivered or is not to be (`since`, epoch milliseconds). `chats`: where was
        talked; `users`: who has access.
        """

    @abstractmethod
    def seen_until(self) -> int | None:
        """Returns the epoch milliseconds up to which everything was delivered; None: nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookReply:
    """What the platform is answered, with status 200."""

    text: str = ""
    content_type: str = "text/plain"


class ReceivesWebhooks(Adapter, ABC):
    asks_before = False
    """True: the platform asks by GET, whether this is the right address, before it delivers anything there."""

    @abstractmethod
    async def receive(self, headers: Mapping[str, str], body: bytes, deliver: Deliver) -> WebhookReply | None:
        """Checks the signature over the raw bytes and delivers what is inside. Returns the answer; None: the signature is wrong."""

    def handshake(self, query: Mapping[str, str]) -> WebhookReply | None:  # noqa: ARG002
        """Returns the answer to the platform's question. None: it does not know our secret."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HomePage:
    """What a person sees who opens the bot's own page: `sessions` (title, when, the command that goes on with it) and the
    `questions` that wait for them, each with its buttons."""

    about: str
    access: str
    may_talk: bool = True
    sessions: tuple[tuple[str, str, str], ...] = ()
    questions: tuple[tuple[str, tuple[Button, ...]], ...] = ()


class ShowsHome(Adapter, ABC):
    @abstractmethod
    async def show_home(self, user: Sender, page: HomePage) -> None: ...
