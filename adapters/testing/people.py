"""People, chats and messages of a fake platform, in words that are the same for all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class FakePerson:
    id: str
    name: str
    is_bot: bool = False


@dataclass(slots=True, eq=False)
class SentFile:
    name: str
    data: bytes
    mime: str = "application/octet-stream"
    voice: bool = False


@dataclass(slots=True, eq=False)
class Said:
    """A message as people see it. `texts`: every text it ever had; `body`: its present form at the wire."""

    id: str
    author: FakePerson
    texts: list[str]
    thread: str | None = None
    reply_to: str | None = None
    buttons: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    file: SentFile | None = None
    deleted: bool = False
    reaction: str | None = None
    only_for: str = ""
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        return self.texts[-1]

    @property
    def labels(self) -> list[str]:
        return [label for label, _ in self.buttons]


@dataclass(slots=True, eq=False)
class Room:
    """A chat. `kind` is the platform's own word; `with_` is the other side of a direct chat."""

    id: str
    kind: str
    title: str = ""
    with_: FakePerson | None = None
    bot_is_in: bool = True
    messages: dict[str, Said] = field(default_factory=dict[str, Said])
    typing: int = 0

    def visible(self) -> Iterator[Said]:
        return (said for said in self.messages.values() if not said.deleted)
