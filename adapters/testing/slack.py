"""Slack at the wire: the Web API, Socket Mode, and signed HTTP events.

    async with SlackServer() as server:
        ann = server.person("U7", "Ann")
        ...  # a bot with base_url=server.api_base, server.bot_token and server.app_token
        server.says(server.dm(ann), ann, "hello")
        assert await server.answered(server.dm(ann)) == ["hi"]
        assert server.violations == []

An event is sent until it is acknowledged, as Slack does, only faster. `calls_back` turns from the socket to HTTP.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
from aiohttp import WSMsgType, web

from adapters.testing.people import FakePerson, Room, Said, SentFile
from adapters.testing.slack_api import SlackApi
from adapters.testing.wire import Json

ALL_SCOPES = (
    "app_mentions:read,assistant:write,channels:history,channels:read,chat:write,commands,files:read,files:write,"
    "groups:history,groups:read,im:history,im:write,mpim:history,reactions:write,users:read"
)


class SlackServer(SlackApi):
    """One workspace with one app. `retry`: seconds until an event that was not acknowledged comes again. `mentions_come_first`: `app_mention` comes
    before its `message`."""

    def __init__(self, *, clock: Callable[[], float] = time.time, retry: float = 0.3, scopes: str = ALL_SCOPES) -> None:
        super().__init__(clock, scopes)
        self.retry = retry
        self.mentions_come_first = False
        self.webhook = ""
        self.pending: list[Json] = []
        self.handed_over: list[float] = []
        self.connections = 0
        self._sockets: list[web.WebSocketResponse] = []
        self._news = asyncio.Event()
        self._acked: dict[str, asyncio.Event] = {}
        self._envelopes = count(1)
        self._working: asyncio.Task[None] | None = None

    def routes(self, app: web.Application) -> None:
        super().routes(app)
        app.router.add_get("/link", self._socket)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._working = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._working is not None:
            self._working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._working
        for socket in self._sockets:
            await socket.close()
        await super().__aexit__()

    # --- people ---

    def says(
        self,
        room: Room,
        person: FakePerson,
        text: str = "",
        *,
        thread: Said | None = None,
        file: SentFile | None = None,
        **more: Any,
    ) -> Said:
        """`more` goes into the event as it stands. A mention of the bot comes as two events, as Slack sends it."""
        said = self.keep(room, person, text, thread=thread.thread or thread.id if thread else None, file=file)
        event: Json = {"type": "message", "user": person.id, "text": text, "ts": said.id, "channel": room.id}
        event |= {"channel_type": room.kind, "event_ts": said.id, "team": self.team, "client_msg_id": f"c{said.id}"}
        if person.is_bot:
            event["bot_id"] = f"B{person.id}"
        if said.thread:
            event["thread_ts"] = said.thread
        if file is not None:
            event |= {"subtype": "file_share", "files": [self._file(file)]}
        said.body = {**event, **more}
        events = [said.body]
        if f"<@{self.bot.id}>" in text and room.kind != "im":
            mention = {key: value for key, value in said.body.items() if key not in {"channel_type", "subtype"}}
            events.insert(0 if self.mentions_come_first else 1, {**mention, "type": "app_mention"})
        for each in events:
            self.event(each)
        return said

    def edits(self, room: Room, message: Said, text: str, *, by_person: bool = True) -> None:
        """`by_person` False: only a preview of a link was added."""
        before = dict(message.body)
        changed = {**before, "text": text}
        if by_person:
            message.texts.append(text)
            changed["edited"] = {"user": message.author.id, "ts": self.stamp()}
        message.body = changed
        self.event(self._about(room, "message_changed", message=changed, previous_message=before))

    def deletes(self, room: Room, message: Said) -> None:
        message.deleted = True
        before = dict(message.body)
        self.event(self._about(room, "message_deleted", deleted_ts=message.id, previous_message=before))

    def taps(self, room: Room, person: FakePerson, message: Said, label: str) -> None:
        blocks: list[Json] = message.body.get("blocks") or []
        keys: list[Json] = [key for block in blocks if block["type"] == "actions" for key in block["elements"]]
        pressed = next(key for key in keys if key["text"]["text"] == label)
        thread = {"thread_ts": message.thread} if message.thread else {}
        container = {"type": "message", "message_ts": message.id, "channel_id": room.id, **thread}
        self._acts(person, pressed, container=container, channel={"id": room.id, "name": room.title})

    def hands_over(self, person: FakePerson, message: Said) -> None:
        """The person chooses the app in the menu of a message."""
        about = {"type": "message_action", "callback_id": "ask", "trigger_id": f"{next(self.numbers)}.1.t"}
        user, team = {"id": person.id, "name": person.name}, {"id": self.team}
        body = {**about, "action_ts": self.stamp(), "user": user, "team": team, "message": self._wire(message)}
        self.push("interactive", body)

    def taps_home(self, person: FakePerson, data: str) -> None:
        pressed = {"type": "button", "action_id": f"home:{data}", "value": data}
        self._acts(person, pressed, container={"type": "view", "view_id": "V1"})

    def commands(self, room: Room, person: FakePerson, text: str) -> None:
        number = next(self.numbers)
        self.push(
            "slash_commands",
            {
                "command": "/hermes",
                "text": text,
                "user_id": person.id,
                "user_name": person.name,
                "channel_id": room.id,
                "channel_name": "directmessage" if room.kind == "im" else room.title,
                "team_id": self.team,
                "trigger_id": f"{number}.1.t",
                "response_url": f"{self.url}/respond/{room.id}/{person.id}",
            },
        )

    def opens_home(self, person: FakePerson) -> None:
        self.event({"type": "app_home_opened", "user": person.id, "tab": "home", "channel": f"D{person.id}"})

    def presses_stop(self, room: Room, person: FakePerson, thread: str | None = None) -> None:
        """The button beside the status of an agent's session."""
        at = {"channel": room.id, "event_ts": self.stamp(), **({"thread_ts": thread} if thread else {})}
        self.event({"type": "agent_session_stopped", "user": person.id, **at})

    def adds(self, room: Room, person: FakePerson) -> None:
        room.bot_is_in = True
        self.event({"type": "member_joined_channel", "user": self.bot.id, "channel": room.id, "inviter": person.id})

    # --- events ---

    def event(self, event: Json, *, event_id: str = "") -> None:
        name = event_id or f"Ev{next(self.numbers):08d}"
        body = {"team_id": self.team, "api_app_id": "A1", "type": "event_callback", "event_id": name, "event": event}
        self.push("events_api", {"event_time": int(self.clock()), **body})

    def push(self, kind: str, payload: Json) -> None:
        self.pending.append({"type": kind, "payload": payload, "attempt": 0})
        self._news.set()

    def double(self) -> None:
        """The last event comes once more, as a retry."""
        again = next(item for item in reversed(self.pending + self.sent) if item["type"] == "events_api")
        self.pending.append({**again, "attempt": 1})
        self._news.set()

    def reorder(self) -> None:
        """The events since the last `await` come in the other order."""
        self.pending.reverse()

    def poison(self) -> None:
        self.event({"type": "message", "channel": 7, "ts": ["x"], "user": {"a": 1}, "text": None})
        self.push("events_api", {"type": "event_callback", "event": "nonsense"})
        self.push("events_api", {"type": "something_new"})
        self.push("interactive", {"type": "block_actions", "user": "nonsense", "actions": [None, {"value": 7}]})
        self.push("slash_commands", {"command": "/hermes", "text": "new"})

    def calls_back(self, url: str) -> None:
        """Posts events there from now on; empty: nowhere, they wait for a socket."""
        self.webhook = url
        self._news.set()

    async def drop(self, reason: str = "warning") -> None:
        """Cuts every socket, after saying so as Slack does before it refreshes a connection."""
        for socket in list(self._sockets):
            if reason:
                await socket.send_str(json.dumps({"type": "disconnect", "reason": reason}))
            await socket.close()

    def signed(self, body: bytes, at: float | None = None) -> dict[str, str]:
        stamp = str(int(self.clock() if at is None else at))
        digest = hmac.new(self.signing_secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}

    def http_body(self, item: Json) -> tuple[bytes, str]:
        payload = item["payload"]
        match item["type"]:
            case "events_api":
                return json.dumps(payload).encode(), "application/json"
            case "slash_commands":
                return urlencode(payload).encode(), "application/x-www-form-urlencoded"
            case _:
                return urlencode({"payload": json.dumps(payload)}).encode(), "application/x-www-form-urlencoded"

    async def _work(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                await self._news.wait()
                if not self.pending or not (self.webhook or self._sockets):
                    self._news.clear()
                    continue
                item = self.pending.pop(0)
                self.sent.append(item)
                asyncio.create_task(self._hand_over(session, item))  # noqa: RUF006  # the server's end ends them

    async def _hand_over(self, session: aiohttp.ClientSession, item: Json) -> None:
        began = self.clock()
        taken = await (self._posted(session, item) if self.webhook else self._through_socket(item))
        if taken:
            self.handed_over.append(self.clock() - began)
            return
        await asyncio.sleep(self.retry)
        self.pending.append({**item, "attempt": item["attempt"] + 1})
        self._news.set()

    async def _posted(self, session: aiohttp.ClientSession, item: Json) -> bool:
        body, kind = self.http_body(item)
        headers = {"Content-Type": kind, **self.signed(body)}
        if item["attempt"]:
            headers |= {"X-Slack-Retry-Num": str(item["attempt"]), "X-Slack-Retry-Reason": "http_error"}
        try:
            async with session.post(self.webhook, data=body, headers=headers) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _through_socket(self, item: Json) -> bool:
        if not self._sockets:
            return False
        name = f"env-{next(self._envelopes)}"
        acked = self._acked[name] = asyncio.Event()
        envelope = {"envelope_id": name, "type": item["type"], "payload": item["payload"]}
        more = {"accepts_response_payload": item["type"] != "events_api", "retry_attempt": item["attempt"]}
        try:
            await self._sockets[-1].send_str(json.dumps({**envelope, **more}))
            async with asyncio.timeout(3):
                await acked.wait()
        except (TimeoutError, ConnectionError, aiohttp.ClientError):
            return False
        finally:
            del self._acked[name]
        return True

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoping=True)
        await socket.prepare(request)
        self.connections += 1
        await socket.send_str(json.dumps({"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"}}))
        self._sockets.append(socket)
        self._news.set()
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    name = json.loads(message.data).get("envelope_id", "")
                    if name in self._acked:
                        self._acked[name].set()
        finally:
            self._sockets.remove(socket)
        return socket

    def _acts(self, person: FakePerson, pressed: Json, **where: Any) -> None:
        action = {**pressed, "block_id": "b1", "action_ts": self.stamp()}
        user = {"id": person.id, "username": person.name, "team_id": self.team}
        body = {"type": "block_actions", "user": user, "team": {"id": self.team}, "actions": [action], **where}
        if "channel" in where:
            body["response_url"] = f"{self.url}/respond/{where['channel']['id']}/{person.id}"
        self.push("interactive", body)

    def _about(self, room: Room, subtype: str, **more: Any) -> Json:
        stamp = self.stamp()
        head = {"type": "message", "subtype": subtype, "hidden": True, "channel": room.id, "channel_type": room.kind}
        return {**head, "ts": stamp, "event_ts": stamp, **more}

    def _file(self, file: SentFile) -> Json:
        name = self.keep_file(file)
        kind = {"subtype": "slack_audio"} if file.voice else {}
        about = {"id": name, "name": file.name, "mimetype": file.mime, "size": len(file.data), **kind}
        return {**about, "url_private_download": f"{self.url}/files/{name}", "mode": "hosted"}
