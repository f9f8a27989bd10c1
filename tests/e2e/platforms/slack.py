"""Slack for the scenarios."""

from typing import Any

from adapters.testing.people import FakePerson, Room, Said, SentFile
from adapters.testing.slack import SlackServer
from tests.e2e.platforms.driver import Driver


class SlackDriver(Driver):
    name = "slack"
    owner_id = "U7"
    command_prefix = "/hermes "

    def __init__(self) -> None:
        self.server = SlackServer()
        self.owner = self.server.person("U7", "Ann")
        self.stranger = self.server.person("U66", "Eve")

    def section(self) -> dict[str, Any]:
        server = self.server
        return {"bot_token": server.bot_token, "app_token": server.app_token, "api_base": server.api_base}

    def dm(self, person: FakePerson | None = None) -> Room:
        return self.server.dm(person or self.owner)

    def group(self) -> Room:
        return self.server.channel()

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
        return self.server.says(room, person or self.owner, text, thread=thread or reply_to, file=file)

    def mention(self, text: str) -> str:
        return f"<@{self.server.bot.id}> {text}"

    def command(self, room: Room, text: str) -> None:
        self.server.commands(room, self.owner, text.removeprefix("/"))

    def taps(self, room: Room, message: Said, label: str, *, person: FakePerson | None = None) -> None:
        self.server.taps(room, person or self.owner, message, label)

    def edits(self, room: Room, message: Said, text: str) -> None:
        self.server.edits(room, message, message.text, by_person=False)
        self.server.edits(room, message, text)

    def deletes(self, room: Room, message: Said) -> None:
        self.server.deletes(room, message)

    def bot_says(self, room: Room, text: str) -> None:
        robot = FakePerson("UROBO", "Robo", is_bot=True)
        self.server.says(room, robot, text)
        own = {"type": "message", "user": self.server.bot.id, "bot_id": "B1", "text": text, "ts": "1.1"}
        self.server.event({**own, "channel": room.id, "channel_type": room.kind})
        self.server.rooms[room.id].messages = {k: v for k, v in room.messages.items() if v.author is not robot}

    def double(self) -> None:
        self.server.double()

    def poison(self) -> None:
        self.server.poison()

    def revoke(self) -> None:
        self.server.revoked = True

    def sending_fails(self, **how: Any) -> Any:
        return self.server.fail("chat.postMessage", **how)

    def rate_limits(self, seconds: int) -> None:
        error = {"ok": False, "error": "ratelimited"}
        self.server.fail("chat.postMessage", status=429, body=error, headers={"Retry-After": str(seconds)})

    def outage(self) -> None:
        self.server.fail("chat.postMessage", status=503, body="<html>Service Unavailable</html>")

    def replies_to(self, room: Room, card: Said, root: Said, text: str) -> None:
        self.server.says(room, self.owner, text, thread=root)

    def starts(self) -> int:
        return self.server.connections
