# pyright: basic
"""The Bot API at the wire. It holds every outgoing call against the published schema and the platform's rules.

    async with TelegramServer() as server:
        owner = server.user(7, "Ada")
        server.user_says(server.dm(owner), owner, "hello")
        ...  # a bot with api_base=server.url
        assert server.answers(7) == ["hi"]
        assert server.violations == []

What is wrong with a call is recorded in `violations` and refused. Floods are answered with 429 and recorded in `floods`.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import Any, cast

import aiohttp
from aiohttp import web

from adapters.testing.telegram_rules import (
    CAPTION_UNITS,
    REACTIONS,
    TEXT_UNITS,
    Flood,
    decode,
    keyboard_problems,
    text_problems,
)
from adapters.testing.telegram_wire import ApiRefusal, Fault, parameters, refusal
from adapters.testing.telegram_world import Json, TelegramChat, TelegramMessage, User, World
from adapters.testing.wire import WireServer, hang_up, poisoned

_FILES = {
    "sendDocument": "document",
    "sendPhoto": "photo",
    "sendVoice": "voice",
    "sendAudio": "audio",
    "sendVideo": "video",
}
_COUNTED = {"sendMessage", "editMessageText", *_FILES}


class TelegramServer(World, WireServer):
    bot: User

    def __init__(
        self,
        token: str = "123456:TEST-token",  # noqa: S107  # of a fake
        *,
        username: str = "hermes_bot",
        clock: Callable[[], float] = time.monotonic,
        longest_poll: float = 1.0,
        check_floods: bool = True,
    ) -> None:
        WireServer.__init__(self)
        World.__init__(self, User(int(token.split(":", maxsplit=1)[0]), "Hermes", username, is_bot=True), clock)
        self.token = token
        self.longest_poll = longest_poll
        self.flood = Flood(clock, on=check_floods)
        self.revoked = False
        self.floods: list[str] = []
        self.faults: list[Fault] = []
        self.polled_from: list[tuple[str, int]] = []
        self.webhook: Json = {"url": ""}
        self.commands: dict[str, list[Json]] = {}
        self._poll = 0

    def routes(self, app: web.Application) -> None:
        app.router.add_route("*", "/bot{token}/{method}", self._call)
        app.router.add_get("/file/bot{token}/{path:.+}", self._download)

    def fail(self, method: str, *, times: int = 1, **how: Any) -> Fault:
        """The next calls of this method ("*": of any) go wrong. See Fault."""
        self.faults.append(Fault(method=method, times=times, **how))
        return self.faults[-1]

    def rate_limit(self, method: str, retry_after: int, times: int = 1) -> None:
        description = f"Too Many Requests: retry after {retry_after}"
        self.fail(method, times=times, status=429, description=description, retry_after=retry_after)

    def revoke(self) -> None:
        self.revoked = True
        self.news.set()

    async def answered(self, chat_id: int | str, count: int = 1, timeout: float = 30) -> list[str]:
        """The bot's texts in this chat, once there are `count`."""
        await self.until(lambda: len(self.answers(chat_id)) >= count, timeout)
        return self.answers(chat_id)

    def webhook_request(self) -> tuple[dict[str, str], bytes]:
        """The next update as Telegram would post it to the webhook."""
        self._leave_out(self.webhook.get("allowed_updates"))
        headers = {
            "Content-Type": "application/json",
            "X-Telegram-Bot-Api-Secret-Token": self.webhook.get("secret_token", ""),
        }
        return headers, json.dumps(self.pending.pop(0)).encode()

    async def push(self) -> None:
        """Posts what is pending to the webhook; an update that is not taken stays."""
        self._leave_out(self.webhook.get("allowed_updates"))
        async with aiohttp.ClientSession() as session:
            while self.pending:
                kept = self.pending[0]
                headers, body = self.webhook_request()
                async with session.post(self.webhook["url"], data=body, headers=headers) as response:
                    if response.status != 200:
                        self.pending.insert(0, kept)
                        return

    async def _call(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        fault = self._fault(method)
        if method == "getUpdates" and request.transport:
            self.polled_from.append(request.transport.get_extra_info("peername"))
        if fault and fault.wait and not fault.drop:
            await fault.wait.wait()
        elif fault and fault.drop == "before":
            return hang_up(request)
        elif fault and fault.raw:
            return web.Response(status=fault.status, text=fault.raw)
        elif fault and not fault.drop and not fault.poison:
            more = {"retry_after": fault.retry_after} if fault.retry_after else {}
            return refusal(ApiRefusal(fault.status, fault.description, **more))
        try:
            self._authorize(request)
            answer = await self._run(method, await parameters(request))
        except ApiRefusal as refused:
            return refusal(refused)
        if fault and fault.wait:
            await fault.wait.wait()
        if fault and fault.poison:
            answer = poisoned(answer)
        return hang_up(request) if fault and fault.drop else web.json_response({"ok": True, "result": answer})

    def _fault(self, method: str) -> Fault | None:
        fault = next((fault for fault in self.faults if fault.method in {method, "*"} and fault.times > 0), None)
        if fault:
            fault.times -= 1
        return fault

    def _authorize(self, request: web.Request) -> None:
        if ":" not in request.match_info["token"]:
            raise ApiRefusal(404, "Not Found")
        if self.revoked or request.match_info["token"] != self.token:
            raise ApiRefusal(401, "Unauthorized")

    async def _run(self, method: str, raw: Json) -> Any:
        answer = cast(Any, getattr(self, f"_{method}", None))
        if not hasattr(self, f"_{method}") and method not in _FILES:
            raise ApiRefusal(404, "Not Found")
        params, problems = decode(method, raw)
        self.calls.append((method, params))
        self._violation(problems)
        if method in _COUNTED:
            self._slow_down(method, params)
        if method in _FILES:
            return self._send_file(method, params)
        return await answer(params) if method == "getUpdates" else answer(params)

    def _violation(self, problems: list[str]) -> None:
        self.violations += problems
        if problems:
            raise ApiRefusal(400, f"Bad Request: {problems[0]}")

    def _slow_down(self, method: str, params: Json) -> None:
        retry_after = self.flood.retry_after(int(params["chat_id"]), group=int(params["chat_id"]) < 0)
        if retry_after is not None:
            self.floods.append(f"{method} to {params['chat_id']}")
            raise ApiRefusal(429, f"Too Many Requests: retry after {retry_after}", retry_after=retry_after)

    async def _getUpdates(self, params: Json) -> list[Json]:  # noqa: N802
        if self.webhook["url"]:
            raise ApiRefusal(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
            )
        self._poll += 1
        mine, offset = self._poll, params.get("offset", 0)
        self._leave_out(params.get("allowed_updates"))
        if offset > 0:
            self.pending = [item for item in self.pending if item["update_id"] >= offset]
        self.news.set()  # an older poll ends
        ends = asyncio.get_running_loop().time() + min(params.get("timeout", 0), self.longest_poll)
        while (
            not self.pending
            and mine == self._poll
            and not self.revoked
            and (left := ends - asyncio.get_running_loop().time()) > 0
        ):
            self.news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.news.wait(), left)
            self._leave_out(params.get("allowed_updates"))
        if self.revoked:
            raise ApiRefusal(401, "Unauthorized")
        if mine != self._poll:
            raise ApiRefusal(
                409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
            )
        return self.pending[: params.get("limit", 100)]

    def _leave_out(self, allowed: list[str] | None) -> None:
        """Nobody has asked for updates of these kinds."""
        if allowed:
            self.pending = [item for item in self.pending if item.keys() & set(allowed)]

    def _getMe(self, _: Json) -> Json:  # noqa: N802
        rights = {"can_join_groups": True, "can_read_all_group_messages": False, "supports_inline_queries": False}
        return {**self.bot.wire(), **rights}

    def _setWebhook(self, params: Json) -> bool:  # noqa: N802
        self.webhook = params
        self._leave_out(params.get("allowed_updates"))
        return True

    def _deleteWebhook(self, params: Json) -> bool:  # noqa: N802
        self.webhook = {"url": ""}
        if params.get("drop_pending_updates"):
            self.pending.clear()
        return True

    def _getWebhookInfo(self, _: Json) -> Json:  # noqa: N802
        return {"url": self.webhook["url"], "has_custom_certificate": False, "pending_update_count": len(self.pending)}

    def _sendMessage(self, params: Json) -> Json:  # noqa: N802
        chat = self._chat(params)
        self._check_text(params["text"], params, "entities", TEXT_UNITS)
        body = {key: params[key] for key in ("text", "entities", "reply_markup") if params.get(key)}
        return self._post(chat, params, body, text=params["text"]).body

    def _send_file(self, method: str, params: Json) -> Json:
        chat, kind = self._chat(params), _FILES[method]
        caption, data = params.get("caption", ""), params[kind]
        if caption:
            self._check_text(caption, params, "caption_entities", CAPTION_UNITS)
        file = {"file_id": self.keep_file(data), "file_unique_id": "u", "file_size": len(data)}
        shape = {"photo": {"width": 1, "height": 1}, "voice": {"duration": 1}}.get(kind, {"file_name": data.filename})
        body = {kind: [{**file, **shape}] if kind == "photo" else {**file, **shape}}
        body |= {key: params[key] for key in ("caption", "caption_entities", "reply_markup") if params.get(key)}
        return self._post(chat, params, body, text=caption, file=data).body

    def _sendMessageDraft(self, params: Json) -> bool:  # noqa: N802
        chat = self._chat(params)
        if chat.type != "private" or not params["draft_id"]:
            self._violation(["sendMessageDraft: only for a private chat, and draft_id is not 0"])
        if params.get("text"):
            self._check_text(params["text"], params, "entities", TEXT_UNITS)
        chat.drafts.append(params.get("text", ""))
        return True

    def _editMessageText(self, params: Json) -> Json:  # noqa: N802
        message = self._message(params, "message to edit not found")
        self._check_text(params["text"], params, "entities", TEXT_UNITS)
        new = {
            "text": params["text"],
            "entities": params.get("entities") or [],
            "reply_markup": params.get("reply_markup") or {},
        }
        if all((message.body.get(key) or type(value)()) == value for key, value in new.items()):
            same = "specified new message content and reply markup are exactly the same as a current content"
            raise ApiRefusal(400, f"Bad Request: message is not modified: {same}")
        message.texts.append(params["text"])
        message.body = {**message.body, **new, "edit_date": message.body["date"]}
        return {key: value for key, value in message.body.items() if value}

    def _deleteMessage(self, params: Json) -> bool:  # noqa: N802
        self._message(params, "message to delete not found").deleted = True
        return True

    def _sendChatAction(self, params: Json) -> bool:  # noqa: N802
        self._chat(params).actions.append(params["action"])
        return True

    def _setMessageReaction(self, params: Json) -> bool:  # noqa: N802
        message = self._message(params, "message to react not found")
        emoji = [reaction["emoji"] for reaction in params.get("reaction", [])]
        if len(emoji) > 1 or any(one not in REACTIONS for one in emoji):
            raise ApiRefusal(400, "Bad Request: REACTION_INVALID")
        message.reaction = emoji[0] if emoji else None
        return True

    def _answerCallbackQuery(self, params: Json) -> bool:  # noqa: N802
        if params["callback_query_id"] not in self.taps_open:
            raise ApiRefusal(400, "Bad Request: query is too old and response timeout expired or query ID is invalid")
        self.taps_open[params["callback_query_id"]] = params.get("text", "")
        return True

    def _setMyCommands(self, params: Json) -> bool:  # noqa: N802
        scope = params.get("scope", {"type": "default"})
        if scope["type"] == "chat" and int(scope["chat_id"]) not in self.chats:
            raise ApiRefusal(400, "Bad Request: chat not found")
        self.commands[_scope_name(scope)] = params["commands"]
        return True

    def _deleteMyCommands(self, params: Json) -> bool:  # noqa: N802
        self.commands.pop(_scope_name(params.get("scope", {"type": "default"})), None)
        return True

    def _getFile(self, params: Json) -> Json:  # noqa: N802
        file_id = params["file_id"]
        data = self.files.get(file_id)
        if data is None:
            raise ApiRefusal(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        if len(data) > 20_000_000:
            raise ApiRefusal(400, "Bad Request: file is too big")
        return {
            "file_id": file_id,
            "file_unique_id": f"u-{file_id}",
            "file_size": len(data),
            "file_path": f"files/{file_id}",
        }

    def _getChatMember(self, params: Json) -> Json:  # noqa: N802
        self._chat(params)
        return {"status": "member", "user": {"id": params["user_id"], "is_bot": False, "first_name": "Member"}}

    async def _download(self, request: web.Request) -> web.Response:
        data = self.files.get(request.match_info["path"].removeprefix("files/"))
        if request.match_info["token"] != self.token or data is None:
            return refusal(ApiRefusal(404, "Not Found"))
        return web.Response(body=data)

    def _chat(self, params: Json) -> TelegramChat:
        chat = self.chats.get(int(params["chat_id"]))
        if chat is None:
            raise ApiRefusal(400, "Bad Request: chat not found")
        if chat.moved_to is not None:
            raise ApiRefusal(
                400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=chat.moved_to
            )
        if chat.bot_is_out:
            private = chat.type == "private"
            raise ApiRefusal(
                403,
                "Forbidden: bot was blocked by the user"
                if private
                else "Forbidden: bot was kicked from the supergroup chat",
            )
        if params.get("message_thread_id") is not None and params["message_thread_id"] not in chat.topics:
            raise ApiRefusal(400, "Bad Request: message thread not found")
        return chat

    def _message(self, params: Json, otherwise: str) -> TelegramMessage:
        message = self._chat(params).messages.get(params["message_id"])
        if message is None or message.deleted:
            raise ApiRefusal(400, f"Bad Request: {otherwise}")
        return message

    def _check_text(self, text: str, params: Json, entities: str, limit: int) -> None:
        problems = text_problems(text, params.get(entities) or [], limit) + keyboard_problems(
            params.get("reply_markup")
        )
        if params.get("parse_mode"):
            problems.append("parse_mode is refused here: send entities")
        self._violation(problems)
        if not text.strip():
            raise ApiRefusal(400, "Bad Request: message text is empty")

    def _post(self, chat: TelegramChat, params: Json, body: Json, **state: Any) -> TelegramMessage:
        reply = params.get("reply_parameters", {})
        reply_to = chat.messages.get(reply.get("message_id", 0))
        if reply and reply_to is None and not reply.get("allow_sending_without_reply"):
            raise ApiRefusal(400, "Bad Request: message to be replied not found")
        silent = params.get("disable_notification", False)
        return self.post(
            chat, self.bot, body, reply_to=reply_to, topic=params.get("message_thread_id"), silent=silent, **state
        )


def _scope_name(scope: Json) -> str:
    return ":".join(str(part) for part in (scope["type"], scope.get("chat_id")) if part is not None)
