"""Slack through slack-bolt: Socket Mode or HTTP events in, the Web API out."""

import asyncio
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import structlog
from slack_bolt import BoltResponse
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest

from adapters.base import (
    Activity,
    Deliver,
    HomePage,
    Pace,
    ReceivesWebhooks,
    ShowsDrafts,
    ShowsHome,
    ShowsStatus,
    TryLater,
    Unauthorized,
    Undeliverable,
    WebhookReply,
    read_file,
)
from adapters.http import MALFORMED, Json, part, text
from adapters.slack.app_manifest import NEEDED
from adapters.slack.config import SlackConfig
from adapters.slack.live import Askers, LiveAnswers, Statuses, mention
from adapters.slack.lookups import ChatTypes, Names, Roots
from adapters.slack.normalize import SlackBot, normalize
from adapters.slack.render import render, view, with_slacks_commands
from adapters.slack.socket import Socket
from adapters.slack.web import REJECTED, SlackRefusal, SlackWeb, download, scope_advice, upload
from sessions.keys import Address, Platform, Sender
from sessions.messages import Attachment, Inbound, InboundKind, Outbound, Piece, Receipt

_EMOJI = {"👀": "eyes"}
_BLOCKS_REFUSED = {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "markdown_text_conflict"}
_ALREADY = {"already_reacted", "no_reaction", "message_not_found", "not_reactable"}
_CHECK_SECONDS = 60.0
_FRESH_SECONDS = 300
_FAILURE = "hermes_failure"

log = structlog.get_logger(__name__)


class Slack(ShowsStatus, ShowsDrafts, ShowsHome, ReceivesWebhooks):
    """An event is acknowledged by a middleware of bolt, after it was delivered; there are no listeners behind it."""

    platform: str = Platform.SLACK
    reports_success = True
    pace = Pace(per_second=20, dm=1.0, group=1.0, edit=1.3)
    status_every = 60.0  # it is gone after two minutes
    status_lasts = 180.0

    def __init__(
        self,
        config: SlackConfig,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        for name in ("slack_bolt", "slack_sdk"):
            logging.getLogger(name).setLevel(logging.ERROR)  # outages are raised, and told once
        self._config = config
        self._clock = clock
        self._sleep = sleep
        self._token = config.bot_token.get_secret_value()
        self._web = SlackWeb(config.api_base, self._token)
        self._app_web = SlackWeb(config.api_base, config.app_token.get_secret_value())
        self._app = self._bolt()
        self._socket = Socket(self._app, self._app_web, config.app_token.get_secret_value())
        self._askers = Askers(clock)
        self._live = LiveAnswers(self._web, self._askers)
        self._statuses = Statuses(self._web)
        self._names = Names(self._web)
        self._roots = Roots(self._web)
        self._chat_types = ChatTypes()
        self._me: SlackBot | None = None
        self._workspace = "Slack"
        self._deliver: Deliver | None = None
        self._revoked = asyncio.Event()

    def _bolt(self) -> AsyncApp:
        async def authorize() -> AuthorizeResult:  # bolt looks at the names of arguments, and takes no methods
            me = self._me or await self._identify()
            return AuthorizeResult(enterprise_id=None, team_id=me.team, bot_user_id=me.user, bot_token=self._token)

        async def take(body: dict[str, Any], context: dict[str, Any]) -> BoltResponse:
            return await self._take(body, context)

        app: Any = AsyncApp(
            token=None,
            authorize=authorize,
            signing_secret="unused",  # noqa: S106  # the signature is checked before the body is parsed
            request_verification_enabled=False,
            ignoring_self_events_enabled=False,  # the normalizer leaves them out, and they have to be acknowledged as well
        )
        # A middleware, not a listener: bolt acknowledges before it calls listeners, and answers 404 where there is none for an event.
        app.middleware(take)
        return app

    # --- in ---

    async def run(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._revoked.clear()
        await self._identify()  # a wrong token is said before a connection is tried
        receiving = self._socket.run(self.note_success) if self._config.mode == "socket" else self._keep_checking()
        tasks = asyncio.ensure_future(receiving), asyncio.ensure_future(self._revoked.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._revoked.is_set():
                raise Unauthorized(REJECTED)
            await tasks[0]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_checking(self) -> None:
        while True:
            await self._identify()
            self.note_success()
            await self._sleep(_CHECK_SECONDS)

    async def close(self) -> None:
        await self._web.close()
        await self._app_web.close()

    def last_success(self) -> float | None:
        return max(filter(None, (self._last_success, self._socket.last_pong())), default=None)

    async def check(self) -> str:
        me = await self._identify()
        if self._config.mode == "socket":
            await self._socket.check()
        return f"@{self._names.known(me.user) or me.user} in {self._workspace}"

    def setup_notes(self) -> Sequence[str]:
        name = (self._names.known(self._me.user) if self._me else None) or "hermes"
        return (f"In a channel where it should answer, type: /invite @{name}",)

    async def _identify(self) -> SlackBot:
        data, headers = await self._web.query_with_headers("auth.test")
        granted = {scope.strip() for scope in headers.get("x-oauth-scopes", "").split(",")} - {""}
        # Slack names the granted scopes in a header. Where it is missing nothing is known, and each call says what it lacks.
        if granted and (missing := sorted(NEEDED - granted)):
            raise Unauthorized(scope_advice(missing))
        self._workspace = text(data, "team") or "Slack"
        self._me = SlackBot(team=text(data, "team_id"), user=text(data, "user_id"), bot=text(data, "bot_id"))
        self._names.learn(self._me.user, text(data, "user"))
        self._live.team = self._me.team
        return self._me

    async def receive(self, headers: Mapping[str, str], body: bytes, deliver: Deliver) -> WebhookReply | None:
        low = {name.lower(): value for name, value in headers.items()}
        if not self._is_signed(low.get("x-slack-request-timestamp", ""), low.get("x-slack-signature", ""), body):
            return None
        self._deliver = deliver
        self.note_success()
        if self._me is None:
            await self._identify()  # raises what may pass; bolt would answer 500, as to an event that it cannot read
        try:
            request = AsyncBoltRequest(body=body.decode(), headers={name: [value] for name, value in low.items()})
            answer = await self._app.async_dispatch(request)
        except MALFORMED as error:
            log.warning("slack.event_skipped", reason=type(error).__name__)
            return WebhookReply()
        # Set by `_take`. Raised here, so that the event is not acknowledged and Slack sends it again.
        failure = cast(dict[str, Any], request.context).get(_FAILURE)
        if isinstance(failure, Exception):
            raise failure
        if answer.status != 200:
            log.warning("slack.event_skipped", reason=f"status {answer.status}")
            return WebhookReply()
        return WebhookReply(
            text=answer.body or "",
            content_type=answer.first_headers().get("content-type", "text/plain").partition(";")[0],
        )

    def _is_signed(self, stamp: str, signature: str, body: bytes) -> bool:
        """Returns whether Slack has sent these bytes within five minutes. The library's own check raises errors for odd ones."""
        secret = self._config.signing_secret.get_secret_value().encode()
        if not secret or re.fullmatch(r"[0-9]{1,12}", stamp) is None:
            return False
        wanted = "v0=" + hmac.new(secret, f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
        is_slacks = hmac.compare_digest(wanted.encode(), signature.encode(errors="replace"))
        if is_slacks and abs(time.time() - int(stamp)) > _FRESH_SECONDS:
            log.warning("slack.event_too_old", advice="It is older than five minutes: check the clock of this machine.")
            return False
        return is_slacks

    async def _take(self, body: dict[str, Any], context: dict[str, Any]) -> BoltResponse:
        """Middleware of bolt: answers 200 once everything is stored. Slack sends again what is not answered so."""
        try:
            for inbound in await self._read(body):
                await self._pass_on(inbound)
        except Exception as error:  # noqa: BLE001  # whatever `deliver` raises: bolt would log it and answer 500; `receive` raises it
            context[_FAILURE] = error
            return BoltResponse(status=503, body="")
        return BoltResponse(status=200, body="")

    async def _read(self, body: Json) -> list[Inbound]:
        event = part(body, "event")
        if event.get("type") in {"app_uninstalled", "tokens_revoked"}:
            self._revoked.set()
        me = self._me or await self._identify()
        try:
            return normalize(await self._chat_types.complete(body), me)
        except MALFORMED as error:
            log.warning("slack.event_skipped", event_id=body.get("event_id"), reason=type(error).__name__)
            return []

    async def _pass_on(self, inbound: Inbound) -> None:
        if self._deliver is None:
            raise TryLater("The gateway is not ready yet.")
        # The home page is in no chat; what is tapped there is answered in the direct chat with the person.
        from_page = inbound.address.chat_id == inbound.sender.id and inbound.kind is not InboundKind.HOME
        if from_page:
            inbound = await self._names.moved_to_dm(inbound)
        inbound = await self._names.with_sender_name(inbound)
        if self._me is not None:
            inbound = await self._roots.with_root(inbound, self._me)
        if inbound.kind is InboundKind.MESSAGE:
            self._askers.note_question(inbound.address, inbound.sender.id)
        await self._deliver(inbound)
        self._roots.note(inbound)

    # --- out ---

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        bot = (self._names.known(self._me.user) if self._me else "") or "hermes"
        said = with_slacks_commands(outbound.text, bot, in_thread=outbound.address.thread_id is not None)
        return render(replace(outbound, text=said))

    async def send(self, address: Address, piece: Piece) -> Receipt:
        """A second call follows only where Slack refused how it is sent, and so has taken nothing."""
        if "filename" in piece:
            data = await read_file(piece)
            comment = piece.get("comment", "")
            return Receipt(
                message_id=await upload(self._web, address.chat_id, address.thread_id, piece["filename"], data, comment)
            )
        if "respond_to" in piece and await self._respond(address, piece):
            return Receipt(message_id="")
        words, blocks = piece["text"], piece["blocks"]
        # Who has waited long looks elsewhere by now; a mention notifies them wherever they are.
        if (user := self._askers.long_waiting_asker(address)) is not None:
            words, blocks = f"<@{user}> {words}", [mention(user), *blocks]
        try:
            sent = await self._post(address, words, blocks)
            self._askers.note_answer(address)
            return Receipt(message_id=sent)
        except SlackRefusal as refusal:
            if refusal.error not in _BLOCKS_REFUSED:
                raise
            log.warning("slack.sent_plain", reason=refusal.error)
            # Without its formatting, but with its buttons: a question must stay answerable.
            actions = [block for block in piece["blocks"] if block["type"] == "actions"]
            section = {"type": "section", "text": {"type": "plain_text", "text": piece["text"][:3000]}}
            return Receipt(
                message_id=await self._post(address, piece["text"], [section, *actions] if actions else None)
            )

    async def _post(self, address: Address, words: str, blocks: Sequence[Any] | None) -> str:
        sent = await self._web.call(
            "chat.postMessage",
            channel=address.chat_id,
            thread_ts=address.thread_id,
            text=words,
            blocks=blocks,
            unfurl_links=False,
            unfurl_media=False,
        )
        return text(sent, "ts")

    async def _respond(self, address: Address, piece: Piece) -> bool:
        """Sends to one person alone. Returns False when a command was too long ago: then everybody hears it."""
        url, said = piece["respond_to"], {"text": piece["text"], "blocks": piece["blocks"]}
        if url.startswith("user:"):
            _, user, thread = url.split(":")
            where = {"channel": address.chat_id, "thread_ts": thread or None}
            await self._web.call("chat.postEphemeral", user=user, **where, **said)
            return True
        body = {"response_type": "ephemeral", "replace_original": False, **said}
        return self._web.is_slacks(url) and await self._web.post(url, json=body) == 200

    async def edit(self, address: Address, message_id: str, piece: Piece) -> None:
        await self._web.call(
            "chat.update", channel=address.chat_id, ts=message_id, text=piece["text"], blocks=piece["blocks"]
        )

    async def draft(
        self,
        address: Address,
        draft_id: str | None,
        text: str,
        *,
        reply_to: str | None = None,  # noqa: ARG002  # the thread says it
        silent: bool = False,  # noqa: ARG002  # Slack has no silent messages
    ) -> str | None:
        return await self._live.show(address, draft_id, text)

    async def finish_draft(self, address: Address, draft_id: str, piece: Piece) -> Receipt | None:
        if "filename" in piece or self._askers.long_waiting_asker(address) is not None:  # an edit would notify nobody
            return None
        await self._live.settle(address, draft_id)  # a stream cannot be edited before it is stopped
        try:
            await self.edit(address, draft_id, piece)
        except Undeliverable:
            return None
        self._askers.note_answer(address)
        return Receipt(message_id=draft_id)

    async def erase_draft(self, address: Address, draft_id: str) -> None:
        await self._live.settle(address, draft_id)
        try:
            await self._web.call("chat.delete", channel=address.chat_id, ts=draft_id)
        except SlackRefusal:  # somebody has already deleted it
            return

    async def status(self, address: Address, activity: Activity, text: str = "") -> None:
        await self._statuses.show(address, activity, text)

    @property
    def can_probe(self) -> bool:
        return True

    async def probe(self, address: Address) -> None:
        await self._web.query("conversations.info", channel=address.chat_id)

    async def react(self, address: Address, message_id: str, emoji: str | None) -> None:
        name = _EMOJI.get(emoji or "👀", "eyes")
        method = "reactions.add" if emoji else "reactions.remove"
        try:
            await self._web.query(method, channel=address.chat_id, timestamp=message_id, name=name)
        except SlackRefusal as refusal:
            if refusal.error not in _ALREADY:
                raise

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        return await download(self._web, attachment, limit)

    async def show_home(self, user: Sender, page: HomePage) -> None:
        await self._web.call("views.publish", user_id=user.id, view=view(page, self._config.suggested_prompts))
