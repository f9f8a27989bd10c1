"""Discord for the scenarios."""

from typing import Any

from adapters.testing.discord import DiscordServer
from adapters.testing.people import FakePerson, Room, Said, SentFile
from tests.e2e.platforms.driver import Driver


class DiscordDriver(Driver):
    name = "discord"
    owner_id = "7"
    sends_once = True

    def __init__(self) -> None:
        self.server = DiscordServer()
        self.owner = self.server.person("7", "Ann")
        self.stranger = self.server.person("66", "Eve")

    def section(self) -> dict[str, Any]:
        server = self.server
        return {"token": server.token, "api_base": server.api_base, "gateway_url": server.gateway_url}

    def dm(self, person: FakePerson | None = None) -> Room:
        return self.server.dm(person or self.owner)

    def group(self) -> Room:
        return self.server.general()

    def says(
        self,
        room: Room,
        text: str,
        *,
        person: FakePerson | None = None,
        reply_to: Said | None = None,
        thread: Said | None = None,
        file: SentFile | None = None,
    ) -> Said:
        where = room if thread is None else self.server.thread(thread)
        return self.server.says(where, person or self.owner, text, reply_to=reply_to, file=file)

    def mention(self, text: str) -> str:
        return f"<@{self.server.bot.id}> {text}"

    def command(self, room: Room, text: str) -> None:
        name, _, argument = text.removeprefix("/").partition(" ")
        self.server.commands(room, self.owner, name, argument)

    def taps(self, room: Room, message: Said, label: str, *, person: FakePerson | None = None) -> None:
        self.server.taps(room, person or self.owner, message, label)

    def edits(self, room: Room, message: Said, text: str) -> None:
        self.server.edits(room, message, message.text, by_person=False)
        self.server.edits(room, message, text)

    def deletes(self, room: Room, message: Said) -> None:
        self.server.deletes(room, message)

    def bot_says(self, room: Room, text: str) -> None:
        robot = self.server.person("99", "Robo", is_bot=True)
        self.server.says(room, robot, text)
        self.server.says(room, self.owner, text, webhook_id="5")
        own = self.server.says(room, self.server.bot, text)
        room.messages = {key: said for key, said in room.messages.items() if said is not own}

    def double(self) -> None:
        self.server.double()

    def poison(self) -> None:
        self.server.poison()

    def revoke(self) -> None:
        self.server.revoked = True

    def sending_fails(self, **how: Any) -> Any:
        return self.server.fail("post", **how)

    def rate_limits(self, seconds: int) -> None:
        body = {"message": "You are being rate limited.", "retry_after": float(seconds), "global": False}
        headers = {"Retry-After": str(seconds), "Via": "1.1 google", "Content-Type": "application/json"}
        self.server.fail("post", status=429, body=body, headers=headers)

    def outage(self) -> None:
        self.server.fail("post", status=503, body="upstream connect error")

    def thread_of(self, room: Room, root: Said) -> Room:
        return self.server.thread(root)

    def thread_id(self, root: Said) -> str | None:
        return None

    async def until_ready(self) -> None:
        await self.server.until(self.server.is_connected, timeout=60)

    def starts(self) -> int:
        return self.server.identified + self.server.resumed
