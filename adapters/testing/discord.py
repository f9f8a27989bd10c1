"""Discord at the wire: the gateway with sessions that can be resumed, and the HTTP API.

    async with DiscordServer() as server:
        ann = server.person("7", "Ann")
        ...  # a bot with server.api_base and server.gateway_url
        server.says(server.dm(ann), ann, "hello")
        assert await server.answered(server.dm(ann)) == ["hi"]
        assert server.violations == []

A message that was sent twice under one enforced nonce is there once. `drop`, `invalidate` and `offline` make trouble. `most_connected`: how many
connections there were at the same time at most.
"""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp import WSMsgType, web

from adapters.testing.discord_api import APPLICATION, CONTENT_INTENT, DiscordApi
from adapters.testing.people import FakePerson, Room, Said, SentFile
from adapters.testing.wire import Json

_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME, _RECONNECT, _INVALID, _HELLO, _ACK = 0, 1, 2, 6, 7, 9, 10, 11


class DiscordServer(DiscordApi):
    """One guild with one bot. `intents`: whether the privileged intent for the content of messages is switched on."""

    def __init__(self, *, clock: Callable[[], float] = time.time, intents: bool = True) -> None:
        super().__init__(clock, intents)
        self.events: list[Json] = []
        self.resumed = 0
        self.identified = 0
        self.most_connected = 0
        self.session = ""
        self._sockets: list[web.WebSocketResponse] = []
        self._pushes: set[asyncio.Task[None]] = set()
        self._unsent: list[Json] = []

    def routes(self, app: web.Application) -> None:
        app.router.add_get("/", self._gateway)
        super().routes(app)

    @property
    def gateway_url(self) -> str:
        return self.url.replace("http", "ws")

    async def __aexit__(self, *_: object) -> None:
        for socket in list(self._sockets):
            await socket.close()
        await super().__aexit__()

    # --- people ---

    def says(
        self,
        room: Room,
        person: FakePerson,
        text: str = "",
        *,
        reply_to: Said | None = None,
        file: SentFile | None = None,
        **more: Any,
    ) -> Said:
        """`more` goes into the message as it stands, for everything that has no parameter here."""
        said = self.keep(room, person, text, reply_to=reply_to.id if reply_to else None, file=file)
        self.extras[said.id] = more
        said.body = self.wire(room, said)
        self.dispatch("MESSAGE_CREATE", said.body)
        return said

    def edits(self, room: Room, message: Said, text: str, *, by_person: bool = True) -> None:
        """`by_person` False: only a preview of a link was added."""
        if by_person:
            message.texts.append(text)
        edited = self.stamp() if by_person else None
        message.body = {**self.wire(room, message), "edited_timestamp": edited}
        self.dispatch("MESSAGE_UPDATE", message.body)

    def deletes(self, room: Room, message: Said) -> None:
        message.deleted = True
        guild = {} if room.kind == "dm" else {"guild_id": self.guild}
        self.dispatch("MESSAGE_DELETE", {"id": message.id, "channel_id": room.id, **guild})

    def taps(self, room: Room, person: FakePerson, message: Said, label: str) -> str:
        """Returns the id of the interaction."""
        data = next(data for shown, data in message.buttons if shown == label)
        body = {"type": 3, "data": {"custom_id": data, "component_type": 2}, "message": self.wire(room, message)}
        return self._interacts(room, person, body)

    def commands(self, room: Room, person: FakePerson, name: str, argument: str = "") -> str:
        options = [{"name": "text", "type": 3, "value": argument}] if argument else []
        data = {"id": "1", "name": name, "type": 1, "options": options}
        return self._interacts(room, person, {"type": 2, "data": data})

    def _interacts(self, room: Room, person: FakePerson, body: Json) -> str:
        number = self.next_id()
        self.interactions[number] = (room, person)
        user = self.user(person)
        who = {"user": user} if room.kind == "dm" else {"member": self.member(person), "guild_id": self.guild}
        about = {"id": number, "application_id": APPLICATION, "token": f"token-{number}", "version": 1}
        more: Json = {"channel_id": room.id, "channel": self.channel(room), "locale": "en-US", "entitlements": []}
        self.dispatch(
            "INTERACTION_CREATE",
            {**about, **more, **who, "attachment_size_limit": 10_000_000, "authorizing_integration_owners": {}, **body},
        )
        return number

    # --- the gateway ---

    def dispatch(self, name: str, data: Json) -> None:
        event = {"op": _DISPATCH, "t": name, "s": len(self.events) + 1, "d": data}
        self.events.append(event)
        for socket in self._sockets:
            self._unsent.append(event)
            self._push(socket, event)

    def double(self) -> None:
        """The last message is dispatched once more."""
        last = next(event for event in reversed(self.events) if event["t"] == "MESSAGE_CREATE")
        self.dispatch("MESSAGE_CREATE", last["d"])

    def reorder(self) -> None:
        """The messages since the last `await` come in the other order. Their sequence numbers still rise, as a session's do."""
        unsent = [event for event in self._unsent if event["t"] == "MESSAGE_CREATE"]
        for event, data in zip(unsent, [event["d"] for event in reversed(unsent)], strict=True):
            event["d"] = data

    def poison(self) -> None:
        """Events that nobody can read, and a message of that kind in the history of every chat."""
        for room in self.rooms.values():
            self.unreadable.add(self.keep(room, self.person("98", "Nobody"), "?").id)
        self._interacts(self.general(), self.person("98", "Nobody"), {"type": 2, "data": {"name": ["x"], "options": 7}})
        self._interacts(self.general(), self.person("98", "Nobody"), {"type": 3, "data": "nonsense", "message": {}})
        self.dispatch("SOMETHING_NEW", {"a": [1]})
        self.dispatch("MESSAGE_CREATE", {"id": self.next_id()})
        self.dispatch("MESSAGE_CREATE", {**self.wire(self.general(), self.unsent()), "type": 99, "attachments": []})

    async def drop(self, code: int = 4000) -> None:
        """Cuts the connection; the session can be resumed."""
        for socket in list(self._sockets):
            await socket.close(code=code)

    async def ask_to_reconnect(self) -> None:
        for socket in list(self._sockets):
            await socket.send_str(json.dumps({"op": _RECONNECT, "d": None}))

    async def invalidate(self) -> None:
        """The session cannot be resumed: what is said until the next one begins is never dispatched."""
        self.session = ""
        for socket in list(self._sockets):
            with suppress(ConnectionError):
                await socket.send_str(json.dumps({"op": _INVALID, "d": False}))

    def is_connected(self) -> bool:
        return bool(self._sockets)

    def _push(self, socket: web.WebSocketResponse, event: Json) -> None:
        async def push() -> None:
            self._unsent = [one for one in self._unsent if one is not event]
            with suppress(ConnectionError, RuntimeError):
                await socket.send_str(json.dumps(event))

        task = asyncio.ensure_future(push())
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)

    async def _gateway(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(json.dumps({"op": _HELLO, "d": {"heartbeat_interval": 41_250}}))
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    await self._hear(socket, json.loads(message.data))
        finally:
            with suppress(ValueError):
                self._sockets.remove(socket)
        return socket

    async def _hear(self, socket: web.WebSocketResponse, said: Json) -> None:
        match said["op"]:
            case 1:
                await socket.send_str(json.dumps({"op": _ACK}))
            case 2:
                await self._identify(socket, said["d"])
            case 6:
                await self._resume(socket, said["d"])
            case _:
                return

    async def _identify(self, socket: web.WebSocketResponse, asked: Json) -> None:
        if self.revoked or asked["token"] != self.token:
            await socket.close(code=4004, message=b"Authentication failed.")
            return
        if asked["intents"] & CONTENT_INTENT and not self.intents:
            await socket.close(code=4014, message=b"Disallowed intent(s).")
            return
        self.identified += 1
        self.session = f"session-{self.identified}"
        self.events.clear()
        ready = {
            "v": 10,
            "user": self.user(self.bot),
            "guilds": [{"id": self.guild, "unavailable": True}],
            "session_id": self.session,
            "resume_gateway_url": self.gateway_url,
            "application": {"id": APPLICATION, "flags": self.flags},
        }
        self.dispatch("READY", ready)
        self._add(socket)
        for event in list(self.events):
            await socket.send_str(json.dumps(event))
        self.dispatch("GUILD_CREATE", self.guild_create())

    async def _resume(self, socket: web.WebSocketResponse, asked: Json) -> None:
        if not self.session or asked["session_id"] != self.session:
            await socket.send_str(json.dumps({"op": _INVALID, "d": False}))
            return
        self.resumed += 1
        for event in self.events[asked["seq"] or 0 :]:
            await socket.send_str(json.dumps(event))
        self._add(socket)
        self.dispatch("RESUMED", {})

    def _add(self, socket: web.WebSocketResponse) -> None:
        self._sockets.append(socket)
        self.most_connected = max(self.most_connected, len(self._sockets))
