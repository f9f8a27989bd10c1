"""Slack's Web API, as far as bots that answer in chats need it."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

from aiohttp import web

from adapters.testing.people import FakePerson, Room, Said, SentFile
from adapters.testing.slack_rules import SCOPES, problems
from adapters.testing.wire import Json, WireServer


class SlackCallRefused(Exception):
    """Slack's answer with `ok: false`."""


class SlackApi(WireServer):
    def __init__(self, clock: Callable[[], float], scopes: str) -> None:
        super().__init__()
        self.clock = clock
        self.scopes = scopes
        self.bot_token, self.app_token = "xoxb-test-token", "xapp-test-token"  # of a fake
        self.token = self.bot_token
        self.signing_secret = "slack-signing-secret"  # noqa: S105
        self.team = "T1"
        self.bot = FakePerson("UBOT", "hermes", is_bot=True)
        self.people: dict[str, FakePerson] = {self.bot.id: self.bot}
        self.rooms: dict[str, Room] = {}
        self.files: dict[str, SentFile] = {}
        self.statuses: dict[tuple[str, str | None], str] = {}
        self.status_texts: dict[tuple[str, str | None], str] = {}
        self.pages: dict[str, Json] = {}
        self.streaming: set[str] = set()
        self.missing: set[str] = set()
        self.revoked = False
        self.sent: list[Json] = []
        self.in_addresses: list[str] = []
        self.numbers = count(1)

    def routes(self, app: web.Application) -> None:
        app.router.add_route("*", "/api/{method}", self._call)
        app.router.add_post("/respond/{room}/{user}", self._respond)
        app.router.add_post("/upload/{name}", self._upload)
        app.router.add_get("/files/{name}", self._download)

    @property
    def api_base(self) -> str:
        return f"{self.url}/api/"

    # --- the workspace ---

    def person(self, user_id: str, name: str) -> FakePerson:
        return self.people.setdefault(user_id, FakePerson(user_id, name))

    def dm(self, person: FakePerson) -> Room:
        return self.rooms.setdefault(f"D{person.id}", Room(f"D{person.id}", "im", person.name, person))

    def channel(self, channel_id: str = "C1", title: str = "general") -> Room:
        return self.rooms.setdefault(channel_id, Room(channel_id, "channel", title))

    def group_dm(self, channel_id: str = "G1", title: str = "mpdm-ann--bob-1") -> Room:
        return self.rooms.setdefault(channel_id, Room(channel_id, "mpim", title))

    def answers(self, room: Room) -> list[str]:
        return [said.text for said in room.visible() if said.author is self.bot]

    async def answered(self, room: Room, count: int = 1, timeout: float = 30) -> list[str]:
        """The bot's texts in this chat, once there are `count`."""
        await self.until(lambda: len(self.answers(room)) >= count, timeout)
        return self.answers(room)

    def does_not_know(self, *methods: str) -> None:
        """As in a workspace that lacks what these methods need."""
        self.missing |= set(methods)

    def stamp(self) -> str:
        return f"{int(self.clock())}.{next(self.numbers):06d}"

    def keep(self, room: Room, author: FakePerson, text: str, **more: Any) -> Said:
        said = Said(self.stamp(), author, [text], **more)
        room.messages[said.id] = said
        return said

    def keep_file(self, file: SentFile) -> str:
        name = f"F{next(self.numbers):04d}"
        self.files[name] = file
        return name

    # --- calls ---

    async def _call(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        body = await _arguments(request)
        self.in_addresses += request.query  # which servers on the way write down

        given = body.pop("token", None)  # some clients send it so
        authorization = f"Bearer {given}" if given else request.headers.get("Authorization", "")

        async def act() -> web.StreamResponse:
            try:
                found = self._run(method, body, authorization)
            except SlackCallRefused as refusal:
                needed = {"needed": SCOPES.get(method, ""), "provided": self.scopes}
                return web.json_response({"ok": False, "error": str(refusal), **needed})
            return web.json_response({"ok": True, **found}, headers={"x-oauth-scopes": self.scopes})

        return await self.answer(request, method, act)

    def _run(self, method: str, body: Json, authorization: str) -> Json:
        wanted = self.app_token if method == "apps.connections.open" else self.bot_token
        if self.revoked or authorization != f"Bearer {wanted}":
            raise SlackCallRefused("token_revoked" if self.revoked else "invalid_auth")
        handler = getattr(self, f"_{method.replace('.', '_')}", None)
        if handler is None or method in self.missing:
            raise SlackCallRefused("unknown_method")
        if SCOPES.get(method, "") not in {"", *self.scopes.split(",")}:
            raise SlackCallRefused("missing_scope")
        self.calls.append((method, body))
        if found := problems(method, body):
            self.violations += found
            raise SlackCallRefused("invalid_arguments")
        return handler(body)

    def _auth_test(self, _: Json) -> Json:
        return {"team": "Test", "team_id": self.team, "user": self.bot.name, "user_id": self.bot.id, "bot_id": "B1"}

    def _apps_connections_open(self, _: Json) -> Json:
        return {"url": f"{self.url.replace('http', 'ws')}/link?ticket={next(self.numbers)}"}

    def _room(self, channel: str) -> Room:
        if channel in self.people:  # a person's id stands for the direct chat
            return self.dm(self.people[channel])
        room = self.rooms.get(channel)
        if room is None or not room.bot_is_in:
            raise SlackCallRefused("channel_not_found" if room is None else "not_in_channel")
        return room

    def _said(self, body: Json, key: str = "ts") -> Said:
        said = self._room(body["channel"]).messages.get(body[key])
        if said is None or said.deleted:
            raise SlackCallRefused("message_not_found")
        return said

    def _chat_postMessage(self, body: Json) -> Json:  # noqa: N802
        room = self._room(body["channel"])
        thread = body.get("thread_ts")
        if thread and thread not in room.messages:
            raise SlackCallRefused("thread_not_found")
        said = self.keep(room, self.bot, _shown(body), thread=thread)
        said.buttons, said.body = _buttons(body), body
        return {"channel": room.id, "ts": said.id}

    def _chat_postEphemeral(self, body: Json) -> Json:  # noqa: N802
        room = self._room(body["channel"])
        said = self.keep(room, self.bot, _shown(body), thread=body.get("thread_ts"), only_for=body["user"])
        return {"message_ts": said.id}

    def _chat_update(self, body: Json) -> Json:
        said = self._said(body)
        if said.id in self.streaming:
            raise SlackCallRefused("streaming_state_conflict")
        said.texts.append(_shown(body))
        said.buttons, said.body = _buttons(body), body
        return {"channel": body["channel"], "ts": said.id}

    def _chat_delete(self, body: Json) -> Json:
        self._said(body).deleted = True
        return {}

    def _chat_startStream(self, body: Json) -> Json:  # noqa: N802
        room = self._room(body["channel"])
        if room.kind != "im" and not (body.get("recipient_user_id") and body.get("recipient_team_id")):
            raise SlackCallRefused("missing_recipient_user_id")
        said = self.keep(room, self.bot, body.get("markdown_text", ""), thread=body["thread_ts"])
        self.streaming.add(said.id)
        return {"channel": room.id, "ts": said.id}

    def _chat_appendStream(self, body: Json) -> Json:  # noqa: N802
        said = self._said(body)
        if said.id not in self.streaming:
            raise SlackCallRefused("message_not_in_streaming_state")
        said.texts.append(said.text + body["markdown_text"])
        return {}

    def _chat_stopStream(self, body: Json) -> Json:  # noqa: N802
        said = self._said(body)
        if said.id not in self.streaming:
            raise SlackCallRefused("message_not_in_streaming_state")
        self.streaming.discard(said.id)
        return {}

    def _agents_sessions_setStatus(self, body: Json) -> Json:  # noqa: N802
        self._room(body["channel_id"])
        self.statuses[(body["channel_id"], body.get("thread_ts"))] = body["status"]
        return {}

    def _assistant_threads_setStatus(self, body: Json) -> Json:  # noqa: N802
        self._room(body["channel_id"])
        self.status_texts[(body["channel_id"], body["thread_ts"])] = body["status"]
        return {}

    def _reactions_add(self, body: Json) -> Json:
        said = self._said(body, "timestamp")
        if said.reaction:
            raise SlackCallRefused("already_reacted")
        said.reaction = body["name"]
        return {}

    def _reactions_remove(self, body: Json) -> Json:
        said = self._said(body, "timestamp")
        if not said.reaction:
            raise SlackCallRefused("no_reaction")
        said.reaction = None
        return {}

    def _users_info(self, body: Json) -> Json:
        person = self.people.get(body["user"])
        if person is None:
            raise SlackCallRefused("user_not_found")
        profile = {"display_name": person.name, "real_name": person.name}
        return {"user": {"id": person.id, "name": person.name.lower(), "is_bot": person.is_bot, "profile": profile}}

    def _conversations_open(self, body: Json) -> Json:
        return {"channel": {"id": self.dm(self.people[body["users"]]).id}}

    def _conversations_info(self, body: Json) -> Json:
        return {"channel": {"id": self._room(body["channel"]).id}}

    def _conversations_replies(self, body: Json) -> Json:
        room = self._room(body["channel"])
        if body["ts"] not in room.messages:
            raise SlackCallRefused("thread_not_found")
        said = [one for one in room.visible() if body["ts"] in {one.id, one.thread}]
        return {"messages": [self._wire(one) for one in said][: int(body.get("limit", 100))]}

    def _wire(self, said: Said) -> Json:
        own = {"bot_id": "B1"} if said.author is self.bot else {}
        return {"type": "message", "text": said.text, "user": said.author.id, **own, **said.body, "ts": said.id}

    def _files_info(self, body: Json) -> Json:
        return {"file": {"id": body["file"], "url_private_download": f"{self.url}/files/{body['file']}"}}

    def _files_getUploadURLExternal(self, body: Json) -> Json:  # noqa: N802
        name = self.keep_file(SentFile(body["filename"], b""))
        return {"upload_url": f"{self.url}/upload/{name}", "file_id": name}

    def _files_completeUploadExternal(self, body: Json) -> Json:  # noqa: N802
        files = body["files"]
        room = self._room(body["channel_id"])
        for file in files:
            said = self.keep(room, self.bot, body.get("initial_comment", ""), thread=body.get("thread_ts"))
            said.file = self.files[file["id"]]
        return {"files": files}

    def _views_publish(self, body: Json) -> Json:
        self.pages[body["user_id"]] = body["view"]
        return {}

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        body: Json = await request.json()
        room, user = self.rooms[request.match_info["room"]], request.match_info["user"]

        async def act() -> web.StreamResponse:
            if body.get("response_type") != "ephemeral":
                self.violations.append("the answer to a command is for whoever gave it")
            self.keep(room, self.bot, _shown(body), only_for=user)
            return web.Response(text="ok")

        return await self.answer(request, "respond", act)

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        self.files[request.match_info["name"]].data = await request.read()
        return web.Response(text="OK")

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.bot_token}":
            return web.Response(text="<html>sign in</html>", content_type="text/html")
        file = self.files[request.match_info["name"]]
        return web.Response(body=file.data, content_type=file.mime)


async def _arguments(request: web.Request) -> Json:
    if request.content_type == "application/json":
        return await request.json()
    form = await request.post()
    given = {**request.query, **{name: value for name, value in form.items() if isinstance(value, str)}}
    return {name: _parsed(value) for name, value in given.items()}


def _parsed(value: str) -> Any:
    """Lists and objects stand as JSON in a form."""
    return json.loads(value) if value.startswith(("[", "{")) else value


def _shown(body: Json) -> str:
    """What people see: the blocks where there are some, else the text."""
    blocks: list[Json] = body.get("blocks") or []
    shown = [block["text"] for block in blocks if block["type"] == "markdown"]
    return "\n".join(shown) if shown else str(body.get("text", ""))


def _buttons(body: Json) -> list[tuple[str, str]]:
    blocks: list[Json] = body.get("blocks") or []
    rows: list[list[Json]] = [block["elements"] for block in blocks if block["type"] == "actions"]
    return [(element["text"]["text"], element["value"]) for row in rows for element in row]
