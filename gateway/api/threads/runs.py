"""Endpoints for messages to threads, for the runs that they start, and for the event stream of a deployment."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web
from sqlalchemy import Connection

from gateway.api.http.callers import CallerKey, Scope
from gateway.api.http.endpoint import ApiCall, EndpointAnswer, NoFields, endpoint
from gateway.api.http.errors import ApiError, invalid, not_found, unavailable
from gateway.api.http.idempotency import IDEMPOTENCY_HEADERS, RequestMark, mark, run_once
from gateway.api.http.sse import KEEP_ALIVE, EventStream
from gateway.api.http.uploads import Upload, uploaded_files
from gateway.api.threads.deployments import deployment_of
from gateway.api.threads.event_hub import EventReader
from gateway.api.threads.schemas import AcceptedMessage, EventsQuery, PostedMessage, RunRow, Steering
from gateway.observe.logging import get_logger
from sessions import deployments, inbox, runs, spending
from sessions.db.sql import lock
from sessions.deployments import Deployment
from sessions.errors import NotFound
from sessions.keys import SessionKey
from sessions.records import CallOptions, InboxRow, Message, Run
from sessions.runs import Accepted, Opening
from sessions.topics import Topic, Touch

log = get_logger(__name__)

LAST_EVENT = "Last-Event-ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ThreadMessage:
    deployment: Deployment
    thread_id: str | None
    message: Message
    mark: RequestMark
    most: int
    reset: Callable[[str], Opening]
    key: CallerKey


@endpoint(
    "POST",
    "/v1/deployments/{deployment_id}/messages",
    "Say something; the answer comes as events",
    tag="Runs",
    scopes=(Scope.CHAT,),
    responses={202: AcceptedMessage},
    refusals=(413, 422),
    large=True,
    headers=IDEMPOTENCY_HEADERS,
)
async def send_message(call: ApiCall[PostedMessage, NoFields]) -> EndpointAnswer:
    found, app = await deployment_of(call), call.server.app
    if len(call.body.content.encode("utf-8", "replace")) > app.config.limits.message_bytes:
        raise ApiError(413, f"A message may have {app.config.limits.message_bytes:,} bytes of text.", code="too_large")
    marked = mark(call)
    uploads = [
        Upload(source=one.url or one.data or "", name=one.name, mime=one.type) for one in call.body.attachments or ()
    ]
    async with uploaded_files(call, f"agent:{found.agent}") as inbox_files:
        taken = await inbox_files.take(uploads)
        content = "\n".join(filter(None, [call.body.content, *taken.lines]))
        new = _ThreadMessage(
            deployment=found,
            thread_id=call.body.thread_id,
            message=Message(content=content, attachments=tuple(taken.files)),
            mark=marked,
            most=app.config.limits.queue_per_chat,
            reset=app.resets.opening,
            key=call.key,
        )
        accepted, thread_id = await app.database.write(_accept, new, app.clock())
        inbox_files.unwanted = not accepted.fresh
    if accepted.run_id is None or accepted.status is None:
        raise unavailable("The message is here, its run begins in a moment. Ask again.", code="not_begun", after=1)
    if accepted.fresh:
        app.metrics.message("thread", "in")
        if not accepted.joined:
            # Measures the time until the run ends or asks: waiting for a human is not the gateway's time.
            metrics, clock, began = call.server.app.metrics, call.server.clock, call.server.clock()

            def replied(_: Touch) -> None:
                stop()
                metrics.message("thread", "out")
                metrics.replied("thread", clock() - began)

            stop = call.server.changes.on(Topic.RUN, accepted.run_id, replied)
    return EndpointAnswer(
        status=202, body=AcceptedMessage(run_id=accepted.run_id, thread_id=thread_id, status=accepted.status)
    )


def _accept(conn: Connection, new: _ThreadMessage, now: int) -> tuple[Accepted, str]:
    row = new.mark.before(conn)
    if row is None:
        spending.require(conn, new.key.account, new.key.limit, now)
    # A repeated message belongs to the thread that the first one has opened.
    thread_id = _thread(conn, new, now) if row is None else SessionKey.parse(row.session_key).chat_id or ""
    key = str(deployments.key_of(new.deployment.id, thread_id))
    if row is None and inbox.count_unread(conn, key) >= new.most:
        message = f"{new.most} messages wait in this thread already."
        raise ApiError(429, message, code="queue_full", headers={"Retry-After": "5"})
    options = CallOptions(system_prompt=new.deployment.system_prompt, model=new.deployment.model)
    opening = replace(new.reset(key), deployment=new.deployment.id, thread_id=thread_id)
    message = InboxRow(
        dedup_key=new.mark.key,
        session_key=key,
        messages=[new.message],
        options=options,
        fingerprint=new.mark.fingerprint,
        who=new.key.account,
    )
    return runs.accept(conn, message, opening, now, may_approve=new.key.may_approve, by=new.key.name), thread_id


def _thread(conn: Connection, new: _ThreadMessage, now: int) -> str:
    lock(conn, new.deployment.id)  # two at once must not both open a default thread
    deployment = deployments.get(conn, new.deployment.id)
    if new.thread_id is None:
        return deployments.default_thread(conn, deployment, now)
    if new.thread_id == "new":
        return deployments.open_thread(conn, deployment, now)
    if not deployments.sessions_of(conn, deployment.id, new.thread_id):
        raise NotFound(f"There is no thread {new.thread_id}.")
    return new.thread_id


# --- runs ---------------------------------------------------------------------------------------------------------------------


async def _run_of(call: ApiCall[Any, Any], run_id: str) -> Run:
    """Returns the run in the address. Raises ApiError when it is none of this deployment."""
    found = await deployment_of(call)
    with suppress(NotFound):
        run = await call.server.app.database.read(runs.get, run_id)
        if run.deployment == found.id:
            return run
    raise not_found("run")


@endpoint(
    "GET",
    "/v1/deployments/{deployment_id}/runs/{run_id}",
    "How a run stands",
    tag="Runs",
    scopes=(Scope.CHAT, Scope.READ),
    responses={200: RunRow},
)
async def get_run(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    return EndpointAnswer(body=RunRow.of(await _run_of(call, call.path["run_id"])))


@endpoint(
    "POST",
    "/v1/deployments/{deployment_id}/runs/{run_id}/steering",
    "Answer what it asks",
    tag="Runs",
    scopes=(Scope.CHAT, Scope.APPROVE),
    responses={202: RunRow},
    refusals=(409, 413, 422),
    headers=IDEMPOTENCY_HEADERS,
)
async def steer_run(call: ApiCall[Steering, NoFields]) -> EndpointAnswer:
    run, sent = await _run_of(call, call.path["run_id"]), call.body
    ask_id = int(sent.request_id) if sent.request_id else None

    def answer(conn: Connection, now: int) -> str:
        if not call.key.may_approve:
            runs.require_no_approval(conn, run)
        who = call.key.account
        if not runs.answer(conn, run.id, sent.response, call.key.name, now, ask_id=ask_id, who=who):
            raise ApiError(409, "The run does not wait for this answer (any more).", code="not_waiting")
        return run.id

    return await _run_answer(call, await run_once(call, answer, of=run))


@endpoint(
    "POST",
    "/v1/deployments/{deployment_id}/runs/{run_id}/cancel",
    "Stop it",
    tag="Runs",
    scopes=(Scope.CHAT,),
    responses={202: RunRow},
    refusals=(422,),
    headers=IDEMPOTENCY_HEADERS,
)
async def cancel_run(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    run = await _run_of(call, call.path["run_id"])

    def stop(conn: Connection, now: int) -> str:
        runs.stop(conn, run.id, now)
        return run.id

    return await _run_answer(call, await run_once(call, stop, of=run))


async def _run_answer(call: ApiCall[Any, Any], run_id: str) -> EndpointAnswer:
    return EndpointAnswer(status=202, body=RunRow.of(await call.server.app.database.read(runs.get, run_id)))


# --- events -------------------------------------------------------------------------------------------------------------------


@endpoint(
    "GET",
    "/v1/deployments/{deployment_id}/events",
    "What happens, as it happens: run_status, token, message, tool_call, tool_result, steering_request",
    tag="Runs",
    scopes=(Scope.CHAT, Scope.READ),
    responses={200: "text/event-stream"},
    headers={LAST_EVENT: "Go on after this one"},
)
async def follow_events(call: ApiCall[NoFields, EventsQuery]) -> web.StreamResponse:
    """Streams the stored events that the reader has missed, then new ones, until the reader leaves or is too slow."""
    found, wanted = await deployment_of(call), call.query
    if wanted.run_id is not None:
        await _run_of(call, wanted.run_id)
    if wanted.thread_id is not None:
        await call.server.app.database.read(deployments.thread, found.id, wanted.thread_id)

    def permit() -> None:
        if not call.require_access().sees(found.id, found.created_by):
            raise not_found("deployment")

    stream, hub = EventStream(call.request, permit), call.server.hub
    most = call.server.limits.waiting_event_bytes
    reader = EventReader(most=most, cut=stream.abort, run_id=wanted.run_id, thread_id=wanted.thread_id)
    try:
        async with hub.follow(found.id, reader) as now:
            after = now if wanted.run_id is None else 0
            if (sent := call.request.headers.get(LAST_EVENT)) is not None:
                if not (sent.isascii() and sent.isdecimal() and len(sent) <= 15):
                    raise invalid(f"{LAST_EVENT} is a number.", code="bad_last_event_id", param=LAST_EVENT)
                after = int(sent)
            await stream.write(b": open\n\n")
            async for data in hub.missed(found.id, after, now, run_id=wanted.run_id, thread_id=wanted.thread_id):
                await stream.write(data)
            while not (reader.dropped or call.server.closing.is_set()):
                data = await reader.next(call.server.intervals.heartbeat)
                await stream.write(data or KEEP_ALIVE)
            await stream.end()
    except ConnectionError:
        pass  # the reader has gone
    except ApiError:  # what it followed is not for it any more
        if not stream.started:
            raise
        await stream.end()
    if reader.dropped:
        log.info("events.reader_dropped", deployment=found.id)
    return stream.response
