"""Meta's Cloud API at the wire, and the webhook calls that people's messages become.

    async with WhatsAppServer() as server:
        ann = server.person("491700000001", "Ann")
        server.calls_back(my_bot.webhook_url)  # signed with server.app_secret
        server.says(server.dm(ann), ann, "hello")
        assert await server.answered(server.dm(ann)) == ["hi"]
        assert server.violations == []

An event is posted until it is answered with 200, as Meta does, only faster.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, Self

import aiohttp
from aiohttp import web

from adapters.testing.people import FakePerson, Room, Said, SentFile
from adapters.testing.whatsapp_rules import command_problems, problems
from adapters.testing.wire import Json, WireServer

DAY = 24 * 3600.0
PAIR_SECONDS, PAIR_BURST = 6.0, 45


class WhatsAppServer(WireServer):
    """`window_check`: whether people who have said nothing for a day get no message. `scoped`: people have business-scoped ids."""

    def __init__(
        self, *, clock: Callable[[], float] = time.time, check_floods: bool = True, retry: float = 0.05
    ) -> None:
        super().__init__()
        self.token, self.phone_number_id, self.number = "EAAG-test", "106540352242922", "15550783881"
        self.app_secret, self.verify_token = "meta-app-secret", "meta-verify"  # of a fake
        self.clock = clock
        self.check_floods = check_floods
        self.retry = retry
        self.bot = FakePerson(self.number, "Hermes", is_bot=True)
        self.rooms: dict[str, Room] = {}
        self.media: dict[str, SentFile] = {}
        self.menu: list[Json] = []
        self.read: set[str] = set()
        self.revoked = False
        self.asked = 0
        self.webhook = ""
        self.pending: list[bytes] = []
        self._news = asyncio.Event()
        self._numbers = count(1)
        self._heard: dict[str, float] = {}
        self._tokens: dict[str, tuple[float, float]] = {}
        self._scoped: dict[str, str] = {}
        self._pushing: asyncio.Task[None] | None = None

    def routes(self, app: web.Application) -> None:
        base = "/v23.0"
        app.router.add_get(f"{base}/{self.phone_number_id}", self._about)
        app.router.add_post(f"{base}/{self.phone_number_id}/messages", self._messages)
        app.router.add_post(f"{base}/{self.phone_number_id}/media", self._upload)
        app.router.add_post(f"{base}/{self.phone_number_id}/conversational_automation", self._menu)
        app.router.add_get(base + "/{media}", self._where)
        app.router.add_get("/files/{media}", self._download)

    @property
    def api_base(self) -> str:
        return f"{self.url}/v23.0"

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._pushing = asyncio.create_task(self._push())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pushing is not None:
            self._pushing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pushing
        await super().__aexit__()

    # --- people ---

    def person(self, number: str, name: str, *, scoped: str = "") -> FakePerson:
        """`scoped`: Meta also tells this business-scoped id of the person; with no number it tells nothing else."""
        person = FakePerson(number or scoped, name)
        self._scoped[person.id] = scoped
        return person

    def dm(self, person: FakePerson) -> Room:
        return self.rooms.setdefault(person.id, Room(person.id, "individual", person.name, person))

    def group(self, group_id: str = "Y2FwaV9ncm91cDox", title: str = "Group") -> Room:
        return self.rooms.setdefault(group_id, Room(group_id, "group", title))

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
        body: Json = {"type": "text", "text": {"body": text}} if file is None else self._media_body(file, text)
        if reply_to is not None:
            body["context"] = {"from": reply_to.author.id, "id": reply_to.id}
        said = self._keep(room, person, text, reply_to=reply_to.id if reply_to else None, file=file)
        self._event(room, person, {"id": said.id, **body, **more})
        return said

    def taps(self, room: Room, person: FakePerson, message: Said, label: str) -> None:
        data = next(data for shown, data in message.buttons if shown == label)
        reply = {"type": "button_reply", "button_reply": {"id": data, "title": label}}
        context = {"from": self.number, "id": message.id}
        self._event(room, person, {"id": self._name(), "type": "interactive", "interactive": reply, "context": context})

    def edits(self, room: Room, person: FakePerson, message: Said, text: str) -> None:
        message.texts.append(text)
        changed = {"type": "text", "text": {"body": text}}
        edit = {"original_message_id": message.id, "message": changed}
        self._event(room, person, {"id": self._name(), "type": "edit", "edit": edit})

    def deletes(self, room: Room, person: FakePerson, message: Said) -> None:
        message.deleted = True
        revoke = {"original_message_id": message.id}
        self._event(room, person, {"id": self._name(), "type": "revoke", "revoke": revoke})

    def answers(self, room: Room) -> list[str]:
        return [said.text for said in room.visible() if said.author is self.bot]

    async def answered(self, room: Room, count: int = 1, timeout: float = 30) -> list[str]:
        """The bot's texts in this chat, once there are `count`."""
        await self.until(lambda: len(self.answers(room)) >= count, timeout)
        return self.answers(room)

    def quiet_for(self, person: FakePerson, seconds: float) -> None:
        """The person's last message was so long ago."""
        self._heard[person.id] = self.clock() - seconds

    def failed(self, message: Said, room: Room, code: int, title: str = "Failed") -> None:
        """Meta has taken the message, and could not deliver it."""
        error = {"code": code, "title": title, "message": title, "error_data": {"details": f"{title}."}}
        status = {"id": message.id, "status": "failed", "recipient_id": room.id, "timestamp": self._now()}
        self.post({"statuses": [{**status, "errors": [error]}]})

    # --- the webhook ---

    def calls_back(self, url: str) -> None:
        self.webhook = url
        self._news.set()

    def signed(self, body: bytes) -> dict[str, str]:
        digest = hmac.new(self.app_secret.encode(), body, hashlib.sha256).hexdigest()
        return {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={digest}"}

    def post(self, value: Json) -> None:
        """Puts an event in line; Meta escapes what is not ASCII."""
        about = {"display_phone_number": self.number, "phone_number_id": self.phone_number_id}
        whole = {"messaging_product": "whatsapp", "metadata": about, **value}
        entry = {"id": "102290129340398", "changes": [{"value": whole, "field": "messages"}]}
        self.push_raw(json.dumps({"object": "whatsapp_business_account", "entry": [entry]}).encode())

    def push_raw(self, body: bytes) -> None:
        self.pending.append(body)
        self._news.set()

    def double(self) -> None:
        """The last event comes once more."""
        self.pending.append(self.pending[-1])

    def reorder(self) -> None:
        self.pending.reverse()

    def poison(self) -> None:
        self.post({"messages": [{"id": 7, "type": ["text"], "text": "nonsense", "from": {"a": 1}}, None, "x"]})
        self.push_raw(b"\xff{")

    async def handshake(self, token: str | None = None) -> tuple[int, str]:
        query = {"hub.mode": "subscribe", "hub.verify_token": token or self.verify_token, "hub.challenge": "1158201444"}
        async with aiohttp.ClientSession() as session, session.get(self.webhook, params=query) as answer:
            return answer.status, await answer.text()

    async def _push(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                await self._news.wait()
                if not self.pending or not self.webhook:
                    self._news.clear()
                    continue
                body = self.pending[0]
                if await self._posted(session, body):
                    self.pending.remove(body)
                else:
                    await asyncio.sleep(self.retry)

    async def _posted(self, session: aiohttp.ClientSession, body: bytes) -> bool:
        try:
            async with session.post(self.webhook, data=body, headers=self.signed(body)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _event(self, room: Room, person: FakePerson, message: Json) -> None:
        self._heard[room.id] = self.clock()
        scoped = self._scoped.get(person.id, "")
        contact: Json = {"profile": {"name": person.name}}
        if person.id != scoped:
            contact["wa_id"] = message["from"] = person.id
        if scoped:
            contact["user_id"] = message["from_user_id"] = scoped
        group = {"group_id": room.id} if room.kind == "group" else {}
        self.post({"contacts": [contact], "messages": [{"timestamp": self._now(), **group, **message}]})

    # --- the API ---

    async def _about(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1

        async def act() -> web.StreamResponse:
            return web.json_response(
                {"id": self.phone_number_id, "display_phone_number": f"+{self.number}", "verified_name": "Hermes"}
            )

        return await self._authorized(request, "about", act)

    async def _authorized(self, request: web.Request, name: str, act: Any) -> web.StreamResponse:
        if self.revoked or request.headers.get("Authorization") != f"Bearer {self.token}":
            return _error(401, 190, "Invalid OAuth access token - Cannot parse access token")
        return await self.answer(request, name, act)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body: Json = await request.json()
        name = "read" if "status" in body else str(body.get("type"))

        async def act() -> web.StreamResponse:
            return self._take(name, body)

        return await self._authorized(request, name, act)

    def _take(self, name: str, body: Json) -> web.StreamResponse:
        self.calls.append((name, body))
        if found := problems(body):
            self.violations += found
            return _error(400, 100, f"(#100) Invalid parameter: {found[0]}")
        if name == "read":
            return self._mark_read(body)
        to = str(body.get("to") or body.get("recipient"))
        room = self.rooms.get(to)
        if room is None:
            return _error(400, 131026, "Message undeliverable")
        if self._floods(to):
            return _error(400, 131056, "(#131056) (Business Account, Consumer Account) pair rate limit hit")
        if name == "reaction":
            room.messages[body["reaction"]["message_id"]].reaction = body["reaction"]["emoji"] or None
            return web.json_response({"messages": [{"id": self._name()}]})
        return self._accepted(room, self._posted_by_bot(room, body))

    def _mark_read(self, body: Json) -> web.StreamResponse:
        room = next((room for room in self.rooms.values() if body["message_id"] in room.messages), None)
        if room is None:
            return _error(400, 100, "Invalid parameter: message_id")
        self.read.add(body["message_id"])
        room.typing += "typing_indicator" in body
        return web.json_response({"success": True})

    def _posted_by_bot(self, room: Room, body: Json) -> Said:
        inside = body[body["type"]]
        match body["type"]:
            case "text":
                text, buttons = inside["body"], []
            case "interactive":
                text = inside["body"]["text"]
                buttons = [(one["reply"]["title"], one["reply"]["id"]) for one in inside["action"]["buttons"]]
            case _:
                text, buttons = inside.get("caption", ""), []
        said = self._keep(room, self.bot, text, reply_to=body.get("context", {}).get("message_id"))
        said.buttons = buttons
        file = self.media.get(inside.get("id", ""))
        said.file = replace(file, voice=bool(inside.get("voice"))) if file is not None else None
        return said

    def _accepted(self, room: Room, said: Said) -> web.StreamResponse:
        if room.kind != "group" and self.clock() - self._heard.get(room.id, 0) > DAY:
            said.deleted = True
            self.failed(said, room, 131047, "Re-engagement message")
        contact = {"input": room.id, "wa_id": room.id}
        answer = {"messaging_product": "whatsapp", "contacts": [contact], "messages": [{"id": said.id}]}
        return web.json_response(answer)

    def _floods(self, to: str) -> bool:
        """One message in six seconds for each person, and 45 at once."""
        left, at = self._tokens.get(to, (float(PAIR_BURST), self.clock()))
        left = min(float(PAIR_BURST), left + (self.clock() - at) / PAIR_SECONDS) - 1
        self._tokens[to] = (max(left, -1), self.clock())
        return self.check_floods and left < 0

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        field = form.get("file")

        async def act() -> web.StreamResponse:
            if form.get("messaging_product") != "whatsapp" or not isinstance(field, web.FileField):
                self.violations.append("an upload needs messaging_product and file")
                return _error(400, 100, "Invalid parameter")
            data = field.file.read()
            return web.json_response({"id": self._keep_file(SentFile(field.filename, data, field.content_type))})

        return await self._authorized(request, "media", act)

    async def _menu(self, request: web.Request) -> web.StreamResponse:
        body: Json = await request.json()

        async def act() -> web.StreamResponse:
            self.menu = body["commands"]
            self.violations += command_problems(body)
            return web.json_response({"success": True})

        return await self._authorized(request, "menu", act)

    async def _where(self, request: web.Request) -> web.StreamResponse:
        media = request.match_info["media"]

        async def act() -> web.StreamResponse:
            file = self.media.get(media)
            if file is None:
                return _error(404, 100, f"Object with ID '{media}' does not exist")
            about = {"id": media, "mime_type": file.mime, "file_size": len(file.data)}
            return web.json_response({**about, "url": f"{self.url}/files/{media}", "messaging_product": "whatsapp"})

        return await self._authorized(request, "where", act)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        async def act() -> web.StreamResponse:
            return web.Response(body=self.media[request.match_info["media"]].data)

        return await self._authorized(request, "download", act)

    # --- small things ---

    def _media_body(self, file: SentFile, caption: str) -> Json:
        kind = "audio" if file.mime.startswith("audio/") else "image" if file.mime.startswith("image/") else "document"
        media: Json = {"id": self._keep_file(file), "mime_type": file.mime, "sha256": "4654+8g="}
        if kind == "document":
            media["filename"] = file.name
        if caption:
            media["caption"] = caption
        if file.voice:
            media["voice"] = True
        return {"type": kind, kind: media}

    def _keep_file(self, file: SentFile) -> str:
        media = str(1_000_000_000 + next(self._numbers))
        self.media[media] = file
        return media

    def _keep(self, room: Room, author: FakePerson, text: str, **more: Any) -> Said:
        said = Said(self._name(), author, [text], **more)
        room.messages[said.id] = said
        return said

    def _name(self) -> str:
        return f"wamid.HBgLM{next(self._numbers):08d}"

    def _now(self) -> str:
        return str(int(self.clock()))


def _error(status: int, code: int, message: str) -> web.Response:
    error = {"message": message, "type": "OAuthException", "code": code, "error_data": {"details": message}}
    return web.json_response({"error": {**error, "fbtrace_id": "A"}}, status=status)
