"""Discord's HTTP API, as far as bots that answer in chats need it."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from adapters.testing.discord_rules import command_problems, message_problems
from adapters.testing.people import FakePerson, Room, Said, SentFile
from adapters.testing.published_schemas import schema_problems
from adapters.testing.wire import Json, WireServer, poisoned

APPLICATION = "900000000000000001"
EPOCH_MS = 1_420_070_400_000
CONTENT_INTENT = 1 << 15
_CONTENT_FLAG = 1 << 18
NONCE_SECONDS = 300.0


class DiscordApi(WireServer):
    def __init__(self, clock: Callable[[], float], intents: bool) -> None:
        super().__init__()
        self.clock = clock
        self.intents = intents
        self.token = "MTk4.test.token"  # noqa: S105  # of a fake
        self.revoked = False
        self.bot = FakePerson(APPLICATION, "hermes", is_bot=True)
        self.people: dict[str, FakePerson] = {self.bot.id: self.bot}
        self.guild = "800000000000000001"
        self.rooms: dict[str, Room] = {}
        self.interactions: dict[str, tuple[Room, FakePerson]] = {}
        self.acknowledged: dict[str, int] = {}
        self.offered: list[Json] = []
        self.extras: dict[str, Json] = {}
        self.unreadable: set[str] = set()
        self._numbers = count(1)
        self._nonces: dict[tuple[str, str], tuple[float, Said]] = {}
        self.general()

    def routes(self, app: web.Application) -> None:
        for method, path, name in _ROUTES:
            app.router.add_route(method, f"/api/v10{path}", self._endpoint(name))
        app.router.add_get("/attachments/{message}/{name}", self._download)

    @property
    def api_base(self) -> str:
        return f"{self.url}/api/v10"

    @property
    def flags(self) -> int:
        return _CONTENT_FLAG if self.intents else 0

    # --- the world ---

    def next_id(self) -> str:
        return str((int(self.clock() * 1000) - EPOCH_MS << 22) + next(self._numbers))

    def stamp(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat()

    def person(self, user_id: str, name: str, *, is_bot: bool = False) -> FakePerson:
        return self.people.setdefault(user_id, FakePerson(user_id, name, is_bot=is_bot))

    def dm(self, person: FakePerson) -> Room:
        number = str(700_000_000_000_000_000 + int(person.id))
        return self.rooms.setdefault(number, Room(number, "dm", person.name, person))

    def general(self) -> Room:
        return self.rooms.setdefault("600000000000000001", Room("600000000000000001", "text", "general"))

    def thread(self, root: Said, title: str = "thread") -> Room:
        """Begun from a message, whose number it has."""
        room = self.rooms.get(root.id)
        if room is None:
            room = self.rooms[root.id] = Room(root.id, "thread", title)
        return room

    def unsent(self) -> Said:
        return Said(self.next_id(), self.person("98", "Nobody"), ["?"])

    def keep(self, room: Room, author: FakePerson, text: str, **more: Any) -> Said:
        said = Said(self.next_id(), author, [text], **more)
        room.messages[said.id] = said
        return said

    def answers(self, room: Room) -> list[str]:
        return [said.text for said in room.visible() if said.author is self.bot]

    async def answered(self, room: Room, count: int = 1, timeout: float = 30) -> list[str]:
        """The bot's texts in this chat, once there are `count`."""
        await self.until(lambda: len(self.answers(room)) >= count, timeout)
        return self.answers(room)

    # --- at the wire ---

    def user(self, person: FakePerson) -> Json:
        about = {"id": person.id, "username": person.name.lower(), "global_name": person.name, "discriminator": "0"}
        return {**about, "avatar": None, "bot": person.is_bot}

    def member(self, person: FakePerson) -> Json:
        about: Json = {"user": self.user(person), "roles": [], "joined_at": "2026-01-01T00:00:00+00:00"}
        return {**about, "deaf": False, "mute": False, "flags": 0, "permissions": "8"}

    def wire(self, room: Room, said: Said) -> Json:
        named = [person for person in self.people.values() if f"<@{person.id}>" in said.text]
        body: Json = {
            "id": said.id,
            "channel_id": room.id,
            "author": self.user(said.author),
            "content": said.text,
            "timestamp": self.stamp(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [self.user(person) for person in named],
            "mention_roles": [],
            "attachments": [self._attachment(said)] if said.file else [],
            "embeds": [],
            "pinned": False,
            "type": 19 if said.reply_to else 0,
            "flags": 8192 if said.file and said.file.voice else 0,
            "components": [],
        }
        if room.kind != "dm":
            body |= {
                "guild_id": self.guild,
                "member": {k: v for k, v in self.member(said.author).items() if k != "user"},
            }
        body |= self.extras.get(said.id, {})
        quoted = room.messages.get(said.reply_to or "")
        if quoted is not None:
            body["message_reference"] = {"type": 0, "message_id": quoted.id, "channel_id": room.id}
            body["referenced_message"] = {**self.wire(room, quoted), "referenced_message": None}
        return body

    def _attachment(self, said: Said) -> Json:
        assert said.file is not None  # noqa: S101
        file = said.file
        url = f"{self.url}/attachments/{said.id}/{file.name}?ex=1"
        about = {"id": said.id, "filename": file.name, "size": len(file.data), "url": url, "proxy_url": url}
        voice = {"duration_secs": 2.0, "waveform": "AA=="} if file.voice else {}
        return {**about, "content_type": file.mime, **voice}

    def channel(self, room: Room) -> Json:
        last = max(room.messages, key=int, default=None)
        if room.kind == "dm":
            recipients = [self.user(room.with_)] if room.with_ else []
            return {"id": room.id, "type": 1, "last_message_id": last, "recipients": recipients}
        about: Json = {"id": room.id, "guild_id": self.guild, "name": room.title, "last_message_id": last, "flags": 0}
        if room.kind == "thread":
            times = {
                "archived": False,
                "auto_archive_duration": 1440,
                "archive_timestamp": self.stamp(),
                "locked": False,
            }
            owner = {"owner_id": "7", "parent_id": self.general().id, "message_count": 1, "member_count": 1}
            return {**about, "type": 11, "thread_metadata": times, **owner}
        more: Json = {"position": 0, "permission_overwrites": [], "topic": None, "nsfw": False, "parent_id": None}
        return {**about, "type": 0, **more}

    def guild_create(self) -> Json:
        rooms = [room for room in self.rooms.values() if room.kind != "dm"]
        everyone = {"id": self.guild, "name": "@everyone", "color": 0, "hoist": False, "position": 0}
        return {
            "id": self.guild,
            "name": "Test",
            "owner_id": "7",
            "member_count": len(self.people),
            "roles": [{**everyone, "permissions": "8", "managed": False, "mentionable": False, "flags": 0}],
            "channels": [self.channel(room) for room in rooms if room.kind == "text"],
            "threads": [self.channel(room) for room in rooms if room.kind == "thread"],
            "members": [self.member(self.bot)],
            **{name: [] for name in ("emojis", "stickers", "features", "voice_states", "presences")},
            **{name: [] for name in ("stage_instances", "guild_scheduled_events", "soundboard_sounds")},
            **dict.fromkeys(("verification_level", "default_message_notifications", "mfa_level", "nsfw_level"), 0),
            **dict.fromkeys(("explicit_content_filter", "premium_tier", "system_channel_flags", "afk_timeout"), 0),
            **dict.fromkeys(("system_channel_id", "afk_channel_id", "icon", "preferred_locale", "rules_channel_id")),
        }

    # --- calls ---

    def _endpoint(self, name: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            body, file = await _body(request)

            async def act() -> web.StreamResponse:
                self.calls.append((name, {"body": body} if isinstance(body, list) else body))
                return getattr(self, f"_{name}")(request, body, file)

            is_known = request.headers.get("Authorization") == f"Bot {self.token}" and not self.revoked
            if not is_known and name not in {"hook", "callback"}:
                return _refusal(401, 0, "401: Unauthorized")
            return await self.answer(request, name, act)

        return handle

    def _problems(self, found: list[str]) -> web.Response | None:
        self.violations += found
        return _refusal(400, 50035, f"Invalid Form Body: {found[0]}") if found else None

    def _me(self, *_: Any) -> web.Response:
        return _json({**self.user(self.bot), "verified": True, "mfa_enabled": False, "flags": 0})

    def _application(self, *_: Any) -> web.Response:
        about = {"id": APPLICATION, "name": "hermes", "icon": None, "description": "", "summary": "", "verify_key": "0"}
        more = {"bot_public": True, "bot_require_code_grant": False, "team": None, "owner": self.user(self.bot)}
        return _json({**about, **more, "flags": self.flags, "rpc_origins": []})

    def _room(self, request: web.Request) -> Room | None:
        room = self.rooms.get(request.match_info["channel"])
        return room if room is not None and room.bot_is_in else None

    def _post(self, request: web.Request, body: Json, file: SentFile | None) -> web.Response:
        room = self._room(request)
        if room is None:
            return _refusal(404, 10003, "Unknown Channel")
        found = [*message_problems(body, has_file=file is not None), *schema_problems("discord", _POST, body)]
        if refused := self._problems(found):
            return refused
        key = (room.id, str(body.get("nonce")))
        if body.get("enforce_nonce") and key in self._nonces and self.clock() - self._nonces[key][0] < NONCE_SECONDS:
            return _json(self.wire(room, self._nonces[key][1]))
        said = self.keep(room, self.bot, body.get("content", ""), file=file)
        said.reply_to = body.get("message_reference", {}).get("message_id")
        said.buttons = _buttons(body)
        said.body = {**self.wire(room, said), "sent": body}
        if body.get("nonce"):
            self._nonces[key] = (self.clock(), said)
        self._tell_own(room, said)
        return _json(self.wire(room, said))

    def _tell_own(self, room: Room, said: Said) -> None:
        """Bots hear what they say themselves."""
        dispatch = getattr(self, "dispatch", None)
        if dispatch is not None:
            dispatch("MESSAGE_CREATE", self.wire(room, said))

    def _said(self, request: web.Request) -> tuple[Room, Said] | None:
        room = self._room(request)
        said = room.messages.get(request.match_info["message"]) if room else None
        return (room, said) if room and said and not said.deleted else None

    def _patch(self, request: web.Request, body: Json, _: Any) -> web.Response:
        found = self._said(request)
        if found is None:
            return _refusal(404, 10008, "Unknown Message")
        if refused := self._problems([*message_problems(body, edit=True), *schema_problems("discord", _PATCH, body)]):
            return refused
        room, said = found
        said.texts.append(body["content"])
        said.buttons = _buttons(body)
        return _json(self.wire(room, said))

    def _delete(self, request: web.Request, *_: Any) -> web.Response:
        found = self._said(request)
        if found is None:
            return _refusal(404, 10008, "Unknown Message")
        found[1].deleted = True
        return web.Response(status=204)

    def _one(self, request: web.Request, *_: Any) -> web.Response:
        found = self._said(request)
        return _refusal(404, 10008, "Unknown Message") if found is None else _json(self.wire(*found))

    def _history(self, request: web.Request, *_: Any) -> web.Response:
        room = self._room(request)
        if room is None:
            return _refusal(404, 10003, "Unknown Channel")
        after, limit = int(request.query.get("after", 0)), int(request.query.get("limit", 50))
        younger = [said for said in room.visible() if int(said.id) > after][:limit]
        found = [(said, self.wire(room, said)) for said in reversed(younger)]
        return _json([poisoned(body) if said.id in self.unreadable else body for said, body in found])

    def _type(self, request: web.Request, *_: Any) -> web.Response:
        room = self._room(request)
        if room is None:
            return _refusal(404, 10003, "Unknown Channel")
        room.typing += 1
        return web.Response(status=204)

    def _react(self, request: web.Request, *_: Any) -> web.Response:
        found = self._said(request)
        if found is None:
            return _refusal(404, 10008, "Unknown Message")
        found[1].reaction = unquote(request.match_info["emoji"]) if request.method == "PUT" else None
        return web.Response(status=204)

    def _open_dm(self, _: web.Request, body: Json, __: Any) -> web.Response:
        person = self.people.get(str(body["recipient_id"]))
        return _refusal(400, 50033, "Invalid Recipient(s)") if person is None else _json(self.channel(self.dm(person)))

    def _commands(self, request: web.Request, body: Any, _: Any) -> web.Response:
        if request.method == "PUT":
            if refused := self._problems([*command_problems(body), *schema_problems("discord", _OFFER, body)]):
                return refused
            self.offered = body
        return _json(self.offered)

    def _callback(self, request: web.Request, body: Json, _: Any) -> web.Response:
        number = request.match_info["interaction"]
        if number not in self.interactions or number in self.acknowledged:
            return _refusal(404, 10062, "Unknown interaction")
        if refused := self._problems(schema_problems("discord", _CALLBACK, body)):
            return refused
        self.acknowledged[number] = body["type"]
        if body["type"] == _SAYS:
            room, person = self.interactions[number]
            self.keep(room, self.bot, body["data"]["content"], only_for=person.id)
        about = {"id": number, "type": 2, "response_message_loading": True, "response_message_ephemeral": True}
        return _json({"interaction": about}) if request.query.get("with_response") else web.Response(status=204)

    def _hook(self, request: web.Request, body: Json, _: Any) -> web.Response:
        number = request.match_info["token"].removeprefix("token-")
        if number not in self.acknowledged:
            return _refusal(404, 10015, "Unknown Webhook")
        if refused := self._problems([*message_problems(body), *schema_problems("discord", _RESPOND, body)]):
            return refused
        room, person = self.interactions[number]
        said = self.keep(room, self.bot, body["content"], only_for=person.id)
        return _json(self.wire(room, said))

    async def _download(self, request: web.Request) -> web.StreamResponse:
        number = request.match_info["message"]
        said = next((room.messages[number] for room in self.rooms.values() if number in room.messages), None)

        async def act() -> web.StreamResponse:
            if said is None or said.file is None:
                return _refusal(404, 0, "This content is no longer available.")
            return web.Response(body=said.file.data)

        return await self.answer(request, "download", act)


_POST, _PATCH = "POST /channels/{channel}/messages", "PATCH /channels/{channel}/messages/{message}"
_OFFER, _CALLBACK = ("PUT /applications/{application}/commands", "POST /interactions/{interaction}/{token}/callback")
_SAYS = 4
"""The kind of acknowledgement that is a message."""
_RESPOND = "PATCH /webhooks/{webhook}/{token}/messages/{message}"
_CHANNEL, _MESSAGE = "/channels/{channel}", "/channels/{channel}/messages/{message}"
_ROUTES = (
    ("GET", "/users/@me", "me"),
    ("GET", "/applications/@me", "application"),
    ("GET", "/oauth2/applications/@me", "application"),
    ("POST", "/users/@me/channels", "open_dm"),
    ("POST", f"{_CHANNEL}/messages", "post"),
    ("GET", f"{_CHANNEL}/messages", "history"),
    ("GET", _MESSAGE, "one"),
    ("PATCH", _MESSAGE, "patch"),
    ("DELETE", _MESSAGE, "delete"),
    ("POST", f"{_CHANNEL}/typing", "type"),
    ("PUT", f"{_MESSAGE}/reactions/{{emoji}}/@me", "react"),
    ("DELETE", f"{_MESSAGE}/reactions/{{emoji}}/@me", "react"),
    ("GET", "/applications/{application}/commands", "commands"),
    ("PUT", "/applications/{application}/commands", "commands"),
    ("POST", "/interactions/{interaction}/{token}/callback", "callback"),
    ("PATCH", "/webhooks/{application}/{token}/messages/@original", "hook"),
    ("POST", "/webhooks/{application}/{token}", "hook"),
)


async def _body(request: web.Request) -> tuple[Any, SentFile | None]:
    if request.content_type.startswith("multipart/"):
        form = await request.post()
        field = form.get("files[0]")
        file = SentFile(field.filename, field.file.read()) if isinstance(field, web.FileField) else None
        payload = form["payload_json"]
        return json.loads(payload if isinstance(payload, str | bytes | bytearray) else "{}"), file
    raw = await request.read()
    return (json.loads(raw) if raw else {}), None


def _buttons(body: Json) -> list[tuple[str, str]]:
    rows: list[Json] = body.get("components") or []
    return [(key["label"], key["custom_id"]) for row in rows for key in row["components"]]


def _json(body: Any, status: int = 200) -> web.Response:
    """Without a charset: the library takes any other media type for text."""
    return web.Response(body=json.dumps(body).encode(), status=status, headers={"Content-Type": "application/json"})


def _refusal(status: int, code: int, message: str) -> web.Response:
    return _json({"code": code, "message": message}, status)
