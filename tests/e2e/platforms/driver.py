"""What the scenarios ask of a platform: the same for all, so that each scenario is written once."""

import abc
from typing import Any, ClassVar

from adapters.testing.people import FakePerson, Room, Said, SentFile


class Driver(abc.ABC):
    """The fake of one platform, and what it can do."""

    name: ClassVar[str]
    group_kind: ClassVar[str] = "channel"
    has_threads: ClassVar[bool] = True
    has_previews: ClassVar[bool] = True
    edits_cards: ClassVar[bool] = True
    sends_once: ClassVar[bool] = False
    owner_id: ClassVar[str] = "7"
    command_prefix: ClassVar[str] = "/"
    server: Any
    owner: FakePerson
    stranger: FakePerson

    @abc.abstractmethod
    def section(self) -> dict[str, Any]:
        """Of the configuration, without what all platforms have."""

    def connected_to(self, url: str) -> None:  # noqa: B027  # most platforms are called, and do not call
        """The daemon serves HTTP there now."""

    @abc.abstractmethod
    def dm(self, person: FakePerson | None = None) -> Room: ...

    @abc.abstractmethod
    def group(self) -> Room: ...

    @abc.abstractmethod
    def says(
        self,
        room: Room,
        text: str,
        *,
        person: FakePerson | None = None,
        reply_to: Said | None = None,
        thread: Said | None = None,
        file: SentFile | None = None,
    ) -> Said: ...

    @abc.abstractmethod
    def mention(self, text: str) -> str:
        """The text with the bot's mention before it, as a person types it in a group."""

    @abc.abstractmethod
    def command(self, room: Room, text: str) -> None:
        """A command as a person gives it there: `/new`, `/help`."""

    @abc.abstractmethod
    def taps(self, room: Room, message: Said, label: str, *, person: FakePerson | None = None) -> None: ...

    @abc.abstractmethod
    def edits(self, room: Room, message: Said, text: str) -> None: ...

    @abc.abstractmethod
    def deletes(self, room: Room, message: Said) -> None: ...

    @abc.abstractmethod
    def bot_says(self, room: Room, text: str) -> None:
        """Another bot, and our own words coming back."""

    @abc.abstractmethod
    def double(self) -> None: ...

    def reorder(self) -> None:
        """What was said since the last `await` arrives in the other order."""
        self.server.reorder()

    @abc.abstractmethod
    def poison(self) -> None: ...

    @abc.abstractmethod
    def revoke(self) -> None: ...

    @abc.abstractmethod
    def sending_fails(self, **how: Any) -> Any:
        """The next message of the bot meets a fault."""

    @abc.abstractmethod
    def rate_limits(self, seconds: int) -> None:
        """The next message of the bot is answered with 429 and Retry-After."""

    @abc.abstractmethod
    def outage(self) -> None:
        """The next message of the bot is answered with a 5xx."""

    def said_by_bot(self, room: Room) -> list[Said]:
        return [said for said in room.visible() if said.author is self.server.bot]

    def texts(self, room: Room) -> list[str]:
        return [said.text for said in self.said_by_bot(room)]

    async def until_ready(self) -> None:  # noqa: B027
        """Until a daemon that was just started hears what people say, where nobody keeps it for it."""

    @abc.abstractmethod
    def starts(self) -> int:
        """How often a process has made itself known to the platform."""

    def replies_to(self, room: Room, card: Said, root: Said, text: str) -> None:
        """What a person does who answers this question of the bot in a group."""
        self.says(room, text, reply_to=card)

    def thread_of(self, room: Room, root: Said) -> Room:
        """Where the messages of this thread are kept."""
        return room

    def thread_id(self, root: Said) -> str | None:
        return root.id

    def shown_so_far(self, room: Room) -> bool:
        """The first words of an answer are there, and not the last."""
        return any(
            said.texts[0].startswith("First words") and "Last" not in said.texts[0] for said in self.said_by_bot(room)
        )
