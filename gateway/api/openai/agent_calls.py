"""Calls to the agent.

On a session each is an inbox row with a run of its own, which continues without its caller. A call without a session is answered from what the
caller sent, and nothing is stored.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from sqlalchemy import Connection

from gateway.agent.models.interface import (
    JSON,
    REFUSED,
    TOO_LONG,
    Answer,
    ContextOverflow,
    InputTooLong,
    ModelRefused,
    ModelUnreachable,
)
from gateway.api.http.callers import CallerKey
from gateway.api.http.connection import connection_of
from gateway.api.http.endpoint import ApiCall
from gateway.api.http.errors import ApiError, invalid, unavailable
from gateway.api.http.idempotency import RequestMark, Retry, mark
from gateway.api.http.server_state import ServerState
from gateway.api.http.uploads import UploadedFiles, embedded, upload_in, uploaded_files
from gateway.observe.logging import get_logger
from gateway.runs.live import LiveEvent, TextDeduplicator
from gateway.runs.replies import numbered_question
from gateway.runs.stateless import answer_once
from sessions import inbox, runs, spending, store
from sessions.db.sql import lock
from sessions.errors import NotFound
from sessions.keys import SessionKey
from sessions.records import CallOptions, InboxMode, InboxRow, Message, Role, RunStatus, StopReason
from sessions.runs import Opening
from sessions.runs.journal import CallState, RunEnded, call_state, of_call, texts_of_steps
from sessions.topics import RunStarted, Topic, Touch


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """`messages` is the whole transcript in the form of Chat Completions, without system messages: the options have those."""

    messages: Sequence[JSON]
    options: CallOptions


AGENT = "hermes"
"""The name under which the agent answers with the model that is configured."""
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


def finish_reason(reported: str) -> FinishReason:
    """Reduces the endpoint's finish reason to those that callers know."""
    match reported:
        case "length" | "tool_calls" | "content_filter":
            return reported
        case _:
            return "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOutcome:
    """`waiting`: the text is a question, and the next call answers it."""

    text: str
    tool_calls: Sequence[JSON] = ()
    waiting: bool = False
    finish_reason: FinishReason = "stop"
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class TextFeed:
    """The text of an answer as it is written, for one listener. Once a part of it may be missing it stops, until `complete`."""

    def __init__(self) -> None:
        self.has_text = False
        self._pieces: list[str] = []
        self._taken: list[str] = []
        self._is_late = self._has_gap = False
        self._deduplicator = TextDeduplicator()
        self._news = asyncio.Event()
        self._gap = False

    def on_event(self, event: LiveEvent) -> None:
        match event.kind:
            case "begun":  # whatever was missed before: from here on nothing is
                self._is_late = False
                return
            case "gap":
                self._has_gap = True
                return
            case "token":
                self._has_gap = self._has_gap or self._is_late
                if self._has_gap:
                    return
                if text := self._deduplicator.new_in(event.text):
                    self._pieces.append(f"\n\n{text}" if self._gap else text)
                    self._gap, self.has_text = False, True
            case "afresh":
                self._deduplicator.restart()
            case "said":
                self._gap = self.has_text
                self._deduplicator.end_step()
            case _:
                return
        self._news.set()

    def join_late(self) -> None:
        """Notes that the step at work began unheard: unless it begins anew, its beginning is missing."""
        self._is_late = True

    @property
    def is_whole(self) -> bool:
        return not self._is_late and not self._has_gap

    def complete(self, texts: Sequence[str]) -> None:
        """Adds what is missing of these texts, which are all that was said."""
        passed, whole = "".join([*self._taken, *self._pieces]), "\n\n".join(texts)
        rest = whole.removeprefix(passed) if whole.startswith(passed) else f"\n\n{texts[-1]}"
        if rest:
            self._pieces.append(rest)
            self.has_text = True

    def wake(self) -> None:
        self._news.set()

    async def wait(self, seconds: float) -> bool:
        """Waits for new text. Returns False when there was none in this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def take(self) -> str:
        text = "".join(self._pieces)
        self._pieces.clear()
        self._taken.append(text)
        return text


class Exchange(Protocol):
    """A call that is being answered."""

    @property
    def feed(self) -> TextFeed: ...

    @property
    def id(self) -> str:
        """Returns the id of the call. A call that is recognised as repeated has the id of the first one."""
        ...

    @property
    def came_at(self) -> int:
        """Returns when the call, or the first one that it repeats, arrived, in milliseconds."""
        ...

    async def outcome(self) -> ExchangeOutcome:
        """Waits for the outcome and returns it. Raises ApiError when the call failed."""
        ...


async def text_pieces(exchange: Exchange, every: float) -> AsyncGenerator[str | ExchangeOutcome | None]:
    """Yields new text as it is written, None after `every` seconds without text, and at the end the outcome. Raises ApiError."""
    feed = exchange.feed
    task = asyncio.create_task(exchange.outcome())
    task.add_done_callback(lambda _: feed.wake())
    try:
        while not task.done():
            in_time = await feed.wait(every)
            if text := feed.take():
                yield text
            elif not in_time:
                yield None
        outcome = await task
        if text := feed.take():  # written between the last look and the end
            yield text
        if not feed.has_text and outcome.text:
            yield outcome.text
        elif outcome.waiting:
            yield f"\n\n{outcome.text}"
        yield outcome
    finally:
        task.cancel()


log = get_logger(__name__)

HEADER = "X-Hermes-Session-Id"
MOST_CHARACTERS = 256


def session_id(call: ApiCall[Any, Any]) -> str | None:
    """Returns the session id of the header; None: there is none. Raises ApiError for an invalid one."""
    sent = call.request.headers.get(HEADER)
    if sent is None:
        return None
    if not sent.isprintable():  # `fetch` of browsers and Node sends Latin-1
        sent = sent.encode("utf-8", "surrogateescape").decode("latin-1")
    if not 1 <= len(sent) <= MOST_CHARACTERS or not sent.isprintable():
        raise invalid(f"{HEADER} has 1 to {MOST_CHARACTERS} printable characters.", code="bad_session_id", param=HEADER)
    return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSession:
    """The conversation of a call. `name` is hashed with the body; `mark`: how the call is recognised, where that is known already."""

    key: SessionKey
    name: str
    mark: RequestMark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    """`dedup_key`: of the call that this one is or repeats. `came_at`: when it came first."""

    dedup_key: str
    came_at: int
    fresh: bool


class SessionExchange:
    """Implements `Exchange`. It listens from before its message is stored, so that no word is missed."""

    def __init__(self, server: ServerState, dedup_key: str) -> None:
        self.feed = TextFeed()
        # So a repeated call gives the id of the first one.
        self.id = hashlib.sha256(dedup_key.encode()).hexdigest()[:24]
        self.came_at = 0
        self._server = server
        self.dedup_key = dedup_key
        self._changed = asyncio.Event()
        self._ended: CallState | None = None
        self.run_id: str | None = None
        self._after_ask = 0
        self.repeated = False
        self.answered = False
        self._left = False
        self._looks = False
        self._stops: list[Callable[[], None]] = [
            server.changes.on(Topic.STARTED, dedup_key, self._started),
            server.waiting.add(self),
        ]

    def _started(self, touch: Touch) -> None:
        if isinstance(touch, RunStarted):
            self._follow(touch.run_id, touch.ask_id or 0)

    def look(self) -> None:
        self._looks = True
        self._changed.set()

    def _follow(self, run_id: str, after_ask: int) -> None:
        if self.run_id is None:
            self.run_id, self._after_ask = run_id, after_ask
            self._stops.append(self._server.app.live.listen(run_id, self.feed.on_event))
            self._stops.append(self._server.changes.on(Topic.RUN, run_id, self._run_changed))

    def _run_changed(self, touch: Touch) -> None:
        self._ended = touch.state if isinstance(touch, RunEnded) else None
        self._changed.set()

    def close(self) -> None:
        for stop in self._stops:
            stop()

    def leave(self) -> None:
        """Ends the wait for the outcome, because the caller has left. The run goes on; a repeated call gets its answer."""
        if not self.answered:
            self._left = True
            self._changed.set()

    async def note_whether_left(self) -> None:
        if self._left:
            await self._server.app.database.write(inbox.note_left, self.dedup_key, self._server.app.clock())

    async def outcome(self) -> ExchangeOutcome:
        while True:
            if self._left:
                raise ConnectionResetError("the caller has left")
            if not await self._wait_for_change():  # a repeated call, or another process does the work
                await self._catch_up()
            if self.run_id is not None:
                found = self._ended or await self._call_state(self.run_id)
                if not found.working:
                    outcome = outcome_of(found)
                    if not self.feed.is_whole and (texts := await self._texts(self.run_id)):
                        self.feed.complete(texts)
                    self.answered = True
                    return outcome

    async def _wait_for_change(self) -> bool:
        """Waits until the run has changed. Returns False when the database has to be asked instead: at the first look of a repeated
        call, and on SQLite from time to time, since nobody tells of what another process does.
        """
        if self.repeated:
            self.repeated = False
            return False
        alone = self._server.app.database.bus is None
        try:
            async with asyncio.timeout(self._server.intervals.keep_alive if alone else None):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        looks, self._looks = self._looks, False
        return not looks

    async def _catch_up(self) -> None:
        """Follows the run that the message has started or answered. Passes on first what that has said before, so that a call which is
        repeated in the middle of an answer gets all of it.
        """
        run_id, after_ask = await self._server.app.database.read(of_call, self.dedup_key)
        if run_id is None or self.run_id is not None:
            return
        live, self._after_ask = self._server.app.live, after_ask
        while (found := await self._call_state(run_id)).working:
            steps = live.steps_before(run_id)
            earlier = await self._texts(run_id, steps)
            # Nobody began or ended work on it meanwhile, so what was read and what is replayed neither overlap nor leave a gap.
            if live.steps_before(run_id) == steps:
                for words in earlier:
                    self.feed.on_event(LiveEvent(run_id, "token", words))
                    self.feed.on_event(LiveEvent(run_id, "said"))
                live.replay(run_id, self.feed.on_event)
                if steps is None and found.run.lease_owner is not None:
                    self.feed.join_late()  # at work elsewhere, and nothing was heard of it
                break
        self._follow(run_id, after_ask)

    async def _texts(self, run_id: str, steps: int | None = None) -> list[str]:
        read = self._server.app.database.read
        return await read(texts_of_steps, run_id, after_ask=self._after_ask, steps=steps)

    async def _call_state(self, run_id: str) -> CallState:
        try:
            return await self._server.app.database.read(call_state, run_id, after_ask=self._after_ask)
        except NotFound:
            raise ApiError(409, "The session was deleted while this call waited.", code="session_deleted") from None


def outcome_of(found: CallState) -> ExchangeOutcome:
    """Returns the outcome of a call that is not worked on any more. Raises ApiError when the run failed."""
    run = found.run
    silent = ExchangeOutcome(text="", input_tokens=run.input_tokens, output_tokens=run.output_tokens)
    if found.asked is not None:
        return replace(silent, text=numbered_question(found.asked), waiting=True)
    if run.status is RunStatus.ERROR:
        if run.error_code in {TOO_LONG, REFUSED}:
            raise invalid(run.error or "The call failed.", code=run.error_code, param="messages")
        error = unavailable(run.error or "The run failed.", code="run_failed")
        # Client libraries would repeat the call by themselves: the message is in the conversation already and would be there twice.
        error.headers["X-Should-Retry"] = "false"
        raise error
    said = found.said
    text = (said.content if said is not None else None) or ""
    if found.handed_over and said is not None:
        left = {call.tool_call_id for call in found.handed_over}
        calls = [call for call in said.tool_calls or () if call["id"] in left]
        return replace(silent, text=text, tool_calls=calls, finish_reason="tool_calls")
    reason = "content_filter" if run.withheld else "length" if run.stop_reason is StopReason.BUDGET else "stop"
    return replace(silent, text=text, finish_reason=reason)


@asynccontextmanager
async def call_on_session(
    call: ApiCall[Any, Any], question: AgentCall, place: TargetSession
) -> AsyncGenerator[SessionExchange]:
    """Stores what is new and follows its run. The run goes on when the block is left early."""
    server, marked = call.server, place.mark or mark(call, place.name)
    exchange = SessionExchange(server, marked.key)
    forget: Callable[[], None] | None = None
    try:
        async with uploaded_files(call, place.key.namespace) as inbox_files:
            retry = Retry.of(call, place.name)
            new = InboxRow(
                dedup_key=marked.key,
                session_key=str(place.key),
                messages=[await _message(server, message, inbox_files) for message in _new_messages(question.messages)],
                mode=InboxMode.QUEUE,
                options=question.options,
                fingerprint=marked.fingerprint or retry.fingerprint,
                who=call.key.account,
            )
            now, most = server.app.clock(), server.app.config.limits.queue_per_chat
            accepted = await server.app.database.write(_accept, new, marked, retry, now, most, call.key)
            inbox_files.unwanted = not accepted.fresh
        if accepted.dedup_key != marked.key:  # it repeats an earlier call, under whose key the run is known
            exchange.close()
            exchange = SessionExchange(server, accepted.dedup_key)
        exchange.came_at, exchange.repeated = accepted.came_at, not accepted.fresh
        forget = connection_of(call.request).when_lost(exchange.leave)
        yield exchange
    finally:
        if forget is not None:
            forget()
        exchange.close()
        await exchange.note_whether_left()


def _accept(
    conn: Connection, new: InboxRow, marked: RequestMark, retry: Retry, now: int, most: int, key: CallerKey
) -> _Accepted:
    lock(conn, new.session_key)
    before = marked.before(conn) or inbox.by_dedup_key(conn, new.dedup_key)
    if before is None and marked.fingerprint is None:
        before = retry.before(conn, new.session_key, now)
    if before is not None:
        inbox.note_left(conn, before.dedup_key, None)  # its caller is back
        return _Accepted(dedup_key=before.dedup_key, came_at=before.created_at, fresh=False)
    spending.require(conn, key.account, key.limit, now)
    if inbox.count_unread(conn, new.session_key) >= most:
        raise ApiError(
            429, f"{most} calls wait for this session already.", code="queue_full", headers={"Retry-After": "5"}
        )
    only_results = all(message.role is Role.TOOL for message in new.messages)
    if only_results and runs.active(conn, new.session_key) is None and not inbox.count_unread(conn, new.session_key):
        session = store.active(conn, new.session_key)
        waiting = {call.tool_call_id for call in runs.handed_over(conn, session.id)} if session else set[str | None]()
        if not any(message.tool_call_id in waiting for message in new.messages):
            raise ApiError(409, "No tool call of this session waits for these results.", code="unknown_tool_call")
    runs.accept(conn, new, Opening(), now, may_approve=key.may_approve, by=key.name)
    return _Accepted(dedup_key=new.dedup_key, came_at=now, fresh=True)


def _new_messages(messages: Sequence[JSON]) -> Sequence[JSON]:
    """Returns the messages after the last one of the assistant."""
    last = max((index for index, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    new = messages[last + 1 :]
    if not new:
        raise ApiError(
            422, "Nothing follows the last assistant message: there is nothing to answer.", code="nothing_new"
        )
    return new


async def _message(server: ServerState, message: JSON, inbox_files: UploadedFiles) -> Message:
    """Returns the message as it is stored, with its files saved. Raises ApiError when it is too large."""
    content = message.get("content") or ""
    parts: list[JSON] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    if len(text.encode("utf-8", "replace")) > server.app.config.limits.message_bytes:
        raise ApiError(
            413, f"A message may have {server.app.config.limits.message_bytes:,} bytes of text.", code="too_large"
        )
    taken = await inbox_files.take([upload for part in parts if (upload := upload_in(part))])
    return Message(
        role=Role(message["role"]),
        content="\n".join(filter(None, [text, *taken.lines])),
        attachments=tuple(taken.files),
        tool_call_id=message.get("tool_call_id"),
    )


class StatelessExchange:
    """Implements `Exchange`. `group`: whose share of the places at the model it takes."""

    def __init__(self, server: ServerState, question: AgentCall, group: str) -> None:
        self.feed = TextFeed()
        self.id = secrets.token_hex(12)
        self.came_at = server.app.clock()
        self._server = server
        self._group = group
        self._question = question
        self.task = asyncio.create_task(self._answer())

    async def _answer(self) -> Answer:
        app, question = self._server.app, self._question
        async with app.places.acquire(self._group):
            return await answer_once(app, question.messages, question.options, self.feed.on_event, who=self._group)

    async def outcome(self) -> ExchangeOutcome:
        try:
            # Shielded, so that below a wait that is cancelled differs from work that is cancelled because the caller has left.
            given = await asyncio.shield(self.task)
        except (ContextOverflow, InputTooLong) as error:
            raise invalid(str(error), code=TOO_LONG, param="messages") from error
        except (ModelRefused, ModelUnreachable) as error:
            if isinstance(error, ModelRefused) and (error.about_transcript or error.status in {400, 422}):
                raise invalid(str(error), code=REFUSED) from error
            raise unavailable(str(error), code="model_unavailable") from error
        except asyncio.CancelledError:
            if self.task.cancelled():
                raise ConnectionResetError("the caller has left") from None
            raise
        except Exception as error:  # one bad call must stay its caller's problem
            log.exception("call.failed")
            raise unavailable("The call failed. The gateway's log says why.", code="run_failed") from error
        return ExchangeOutcome(
            text=given.text,
            tool_calls=[call.as_sent() for call in given.tool_calls],
            finish_reason=finish_reason(given.finish_reason),
            input_tokens=given.usage.input_tokens,
            output_tokens=given.usage.output_tokens,
            cached_tokens=given.usage.cached_tokens,
        )


@asynccontextmanager
async def call_without_session(call: ApiCall[Any, Any], question: AgentCall) -> AsyncGenerator[StatelessExchange]:
    """Yields the exchange of a call without a session. Nobody else will ever read the answer, so the work ends with the block or the
    connection, whichever is first.
    """
    app, key = call.server.app, call.key
    connection = connection_of(call.request)
    await app.database.write(spending.take_message, key.account, key.limit, app.clock())
    whole = replace(question, messages=await embedded(call, question.messages))
    exchange = StatelessExchange(call.server, whole, key.account)
    forget = connection.when_lost(exchange.task.cancel)
    try:
        yield exchange
    finally:
        forget()
        exchange.task.cancel()
        with suppress(asyncio.CancelledError, Exception):  # whatever it was, nobody waits for it any more
            await exchange.task
