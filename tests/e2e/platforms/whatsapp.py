"""WhatsApp for the scenarios."""

from typing import Any

from adapters.testing.people import FakePerson, Room, Said, SentFile
from adapters.testing.whatsapp import WhatsAppServer
from tests.e2e.platforms.driver import Driver


class WhatsAppDriver(Driver):
    name = "whatsapp"
    group_kind = "group"
    has_threads = False
    has_previews = False
    edits_cards = False
    owner_id = "491700000001"

    def __init__(self) -> None:
        self.server = WhatsAppServer()
        self.owner = self.server.person(self.owner_id, "Ann", scoped="DE.13491208655302741918")
        self.stranger = self.server.person("491700000066", "Eve")

    def section(self) -> dict[str, Any]:
        server = self.server
        return {
            "access_token": server.token,
            "phone_number_id": server.phone_number_id,
            "app_secret": server.app_secret,
            "verify_token": server.verify_token,
            "api_base": server.api_base,
        }

    def connected_to(self, url: str) -> None:
        self.server.calls_back(f"{url}/webhooks/whatsapp")

    def dm(self, person: FakePerson | None = None) -> Room:
        return self.server.dm(person or self.owner)

    def group(self) -> Room:
        return self.server.group()

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
        return self.server.says(room, person or self.owner, text, reply_to=reply_to, file=file)

    def mention(self, text: str) -> str:
        return f"@{self.server.number} {text}"

    def command(self, room: Room, text: str) -> None:
        self.says(room, text)

    def taps(self, room: Room, message: Said, label: str, *, person: FakePerson | None = None) -> None:
        self.server.taps(room, person or self.owner, message, label)

    def edits(self, room: Room, message: Said, text: str) -> None:
        self.server.edits(room, self.owner, message, text)

    def deletes(self, room: Room, message: Said) -> None:
        self.server.deletes(room, self.owner, message)

    def bot_says(self, room: Room, text: str) -> None:
        self.server.says(room, self.server.bot, text)
        echo = {"from": self.server.number, "to": room.id, "id": "wamid.echo", "type": "text", "text": {"body": text}}
        self.server.post({"message_echoes": [echo]})

    def double(self) -> None:
        self.server.double()

    def poison(self) -> None:
        self.server.poison()

    def revoke(self) -> None:
        self.server.revoked = True

    def sending_fails(self, **how: Any) -> Any:
        return self.server.fail("text", **how)

    def rate_limits(self, seconds: int) -> None:
        error = {"error": {"code": 130429, "message": "Rate limit hit"}}
        self.server.fail("text", status=429, body=error, headers={"Retry-After": str(seconds)})

    def outage(self) -> None:
        self.server.fail("text", status=503, body={"error": {"code": 131016, "message": "Service unavailable"}})

    def starts(self) -> int:
        return self.server.asked
