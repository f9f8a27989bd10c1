"""Answers of the Responses API: written complete and as events, kept by id and continued from; and conversations."""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from gateway.agent.models.interface import JSON
from gateway.api.http.callers import Scope
from gateway.api.http.endpoint import ApiCall, EndpointAnswer, NoFields, endpoint
from gateway.api.http.errors import ApiError
from gateway.api.http.idempotency import IDEMPOTENCY_HEADERS, RequestMark, Retry, mark, run_once
from gateway.api.http.sse import as_data
from gateway.api.http.uploads import upload_in
from gateway.api.openai.agent_calls import (
    AGENT,
    AgentCall,
    Exchange,
    ExchangeOutcome,
    SessionExchange,
    TargetSession,
    call_on_session,
    outcome_of,
)
from gateway.api.openai.schemas import ConversationObject, Deleted, NewConversation, ResponseAnswer, ResponseRequest
from sessions import inbox, responses
from sessions.erase import erase
from sessions.errors import NotFound
from sessions.keys import SessionKey
from sessions.responses import Kept, KeptKind
from sessions.runs.journal import call_state, of_call

_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED = (
    "instructions", "max_output_tokens", "temperature", "top_p", "background", "store", "truncation", "service_tier", "user",
    "prompt_cache_key", "safety_identifier", "top_logprobs", "max_tool_calls", "reasoning", "previous_response_id",
)  # fmt: skip


def unfinished(body: ResponseRequest, name: str, came_at: int, model: str) -> ResponseAnswer:
    """Returns the answer as it is before there is text. What was asked for is echoed as it was sent."""
    sent = body.model_dump(include=set(_ECHOED), exclude_none=True)
    if body.parallel_tool_calls is not None:
        sent["parallel_tool_calls"] = body.parallel_tool_calls
    if body.text is not None:
        sent["text"] = {"format": {"type": "text"}, **body.text.model_dump(exclude_none=True)}
    if body.conversation is not None:
        sent["conversation"] = {"id": body.conversation_id}
    return ResponseAnswer(
        id=f"resp_{name}",
        created_at=came_at // 1000,
        status="in_progress",
        model=model,
        tool_choice=body.tool_choice or "auto",
        tools=[tool.model_dump(exclude_none=True) for tool in body.tools or ()],
        metadata=body.metadata or {},
        **sent,
    )


def complete(begun: ResponseAnswer, outcome: ExchangeOutcome, text: str | None = None) -> ResponseAnswer:
    """Returns the answer with its outcome. `text`: all that was streamed, where that is more than the text of the last step."""
    said = outcome.text if text is None else text
    output = [_message(begun, said, _ended(outcome))] if said or not outcome.tool_calls else []
    output += [_function_call(made) for made in outcome.tool_calls]
    cut = _CUT.get(outcome.finish_reason)
    return begun.model_copy(
        update={
            "status": _ended(outcome),
            "incomplete_details": {"reason": cut} if cut else None,
            "output": output,
            "usage": {
                "input_tokens": outcome.input_tokens,
                "input_tokens_details": {"cached_tokens": outcome.cached_tokens},
                "output_tokens": outcome.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": outcome.input_tokens + outcome.output_tokens,
            },
        }
    )


def failed_answer(begun: ResponseAnswer, error: ApiError) -> ResponseAnswer:
    return begun.model_copy(update={"status": "failed", "error": {"code": "server_error", "message": error.message}})


def _message_id(begun: ResponseAnswer) -> str:
    return f"msg_{begun.id.removeprefix('resp_')}"


def _message(begun: ResponseAnswer, text: str, status: str) -> JSON:
    content = [] if status == "in_progress" else [_text_part(text)]
    return {"id": _message_id(begun), "type": "message", "status": status, "role": "assistant", "content": content}


class Writer:
    """Builds the answer and numbers its events."""

    def __init__(self, call: ApiCall[ResponseRequest, NoFields], under_way: Exchange) -> None:
        body: ResponseRequest = call.body
        self._unfinished = unfinished(body, under_way.id, under_way.came_at, body.model or AGENT)
        self._number = 0
        self.text = ""

    def complete(self, outcome: ExchangeOutcome) -> ResponseAnswer:
        return complete(self._unfinished, outcome, self.text or None)

    def _message(self, text: str, status: str) -> JSON:
        return _message(self._unfinished, text, status)

    def event(self, kind: str, **fields: Any) -> bytes:
        data = as_data({"type": kind, "sequence_number": self._number, **fields}, kind)
        self._number += 1
        return data

    def begin(self) -> bytes:
        response = self._unfinished.model_dump()
        return self.event("response.created", response=response) + self.event("response.in_progress", response=response)

    def text_delta(self, text: str) -> bytes:
        opening = b"" if self.text else self._open_message()
        self.text += text
        return opening + self.event("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def _place(self) -> JSON:
        return {"item_id": _message_id(self._unfinished), "output_index": 0, "content_index": 0}

    def _open_message(self) -> bytes:
        part = _text_part("")
        added = self.event("response.output_item.added", output_index=0, item=self._message("", "in_progress"))
        return added + self.event("response.content_part.added", **self._place(), part=part)

    def finish(self, outcome: ExchangeOutcome) -> bytes:
        parts: list[bytes] = []
        if not self.text and not outcome.tool_calls:
            parts.append(self._open_message())
        if self.text or not outcome.tool_calls:
            part = _text_part(self.text)
            parts.append(self.event("response.output_text.done", **self._place(), text=self.text, logprobs=[]))
            parts.append(self.event("response.content_part.done", **self._place(), part=part))
            item = self._message(self.text, _ended(outcome))
            parts.append(self.event("response.output_item.done", output_index=0, item=item))
        for index, made in enumerate(outcome.tool_calls, 1 if self.text else 0):
            call = _function_call(made)
            begun, arguments = {**call, "arguments": "", "status": "in_progress"}, call["arguments"]
            where = {"item_id": call["id"], "output_index": index}
            parts += [
                self.event("response.output_item.added", output_index=index, item=begun),
                self.event("response.function_call_arguments.delta", **where, delta=arguments),
                self.event("response.function_call_arguments.done", **where, name=call["name"], arguments=arguments),
                self.event("response.output_item.done", output_index=index, item=call),
            ]
        done = self.complete(outcome)
        parts.append(self.event(f"response.{done.status}", response=done.model_dump()))
        return b"".join(parts)

    def failed(self, error: ApiError) -> bytes:
        return self.event("response.failed", response=failed_answer(self._unfinished, error).model_dump())


def _ended(outcome: ExchangeOutcome) -> str:
    return "incomplete" if outcome.finish_reason in _CUT else "completed"


def _text_part(text: str) -> JSON:
    return {"type": "output_text", "text": text, "annotations": []}


def _function_call(made: JSON) -> JSON:
    function = made["function"]
    return {
        "id": f"fc_{made['id']}",
        "type": "function_call",
        "status": "completed",
        "call_id": made["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }


def name_of(marked: RequestMark) -> str:
    """Returns the part of the answer's id after `resp_`. A repeated call gets the same one."""
    return hashlib.sha256(marked.key.encode()).hexdigest()[:24]


@asynccontextmanager
async def begin(call: ApiCall[ResponseRequest, NoFields], question: AgentCall) -> AsyncGenerator[Exchange]:
    """Yields the exchange of a call that continues a kept answer, or works in the background, on the session of its chain. Raises
    ApiError.
    """
    marked, app = mark(call), call.server.app
    before = await _previous(call)
    if before is not None and before.working:
        message = f"{before.id} is still being worked on. Continue it when it is done."
        raise ApiError(409, message, code="response_in_progress", param="previous_response_id")
    retry = Retry.of(call, "")
    new = Kept(
        id=f"resp_{name_of(marked)}",
        key_name=call.key.name,
        created_at=app.clock(),
        answer=unfinished(call.body, name_of(marked), app.clock(), call.body.model or AGENT).model_dump(),
        dedup_key=marked.key,
        input=_earlier(question.messages) if before is None else (),
    )
    kept = await app.database.write(_continue_or_find, new, before, retry, app.clock())
    found = replace(marked, key=kept.dedup_key or marked.key)
    place = TargetSession(key=SessionKey.parse(kept.session_key or ""), name="", mark=found)
    async with call_on_session(call, question, place) as under_way:
        yield under_way


async def _previous(call: ApiCall[ResponseRequest, NoFields]) -> Kept | None:
    """Returns the answer or conversation that the call continues, as it is now; None: it continues none. Raises ApiError."""
    body, database = call.body, call.server.app.database
    if body.previous_response_id is not None and body.conversation_id is not None:
        raise ApiError(
            400, "Send previous_response_id or conversation, not both.", code="invalid_value", param="conversation"
        )
    if body.previous_response_id is not None:
        try:
            found = await database.read(responses.get, body.previous_response_id, call.key.name)
        except NotFound as error:
            raise ApiError(404, str(error), code="previous_response_not_found", param="previous_response_id") from None
        return await _with_result(call, found)
    if body.conversation_id is not None:
        return await database.read(responses.get, body.conversation_id, call.key.name, KeptKind.CONVERSATION)
    return None


def _continue_or_find(conn: Connection, new: Kept, before: Kept | None, retry: Retry, now: int) -> Kept:
    """Returns the new answer, or the one that this call asks for once more."""
    same = responses.find(conn, new.id)
    if same is not None:
        return same
    # Without an Idempotency-Key a retry would otherwise become a second branch of the chain.
    for other in responses.continuations(conn, before.id) if before is not None else ():
        row = inbox.by_dedup_key(conn, other.dedup_key or "")
        if row is not None and retry.matches(row, now):
            return other
    return responses.continue_from(conn, new, before, now)


def _earlier(messages: Sequence[JSON]) -> Sequence[JSON]:
    """Returns the messages before the new input."""
    last = max((index for index, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    tools = next((i for i in range(last + 1, len(messages)) if messages[i]["role"] != "tool"), len(messages))
    return messages[: tools if last >= 0 else 0]


def begun_answer(call: ApiCall[ResponseRequest, NoFields], under_way: Exchange) -> ResponseAnswer:
    """Returns the answer that a call in the background gets at once."""
    model = call.body.model or AGENT
    return unfinished(call.body, under_way.id, under_way.came_at, model).model_copy(update={"status": "queued"})


async def keep_answer(
    call: ApiCall[ResponseRequest, NoFields], under_way: Exchange, question: AgentCall, answer: ResponseAnswer
) -> None:
    """Stores the answer, so that it can be read by its id and continued."""
    database = call.server.app.database
    if isinstance(under_way, SessionExchange):
        await database.write(responses.finish, answer.id, answer.model_dump(), under_way.run_id)
        return
    new = Kept(
        id=answer.id,
        key_name=call.key.name,
        created_at=under_way.came_at,
        answer=answer.model_dump(),
        input=[_without_files(message) for message in question.messages],
    )
    await database.write(responses.keep, new)


def _without_files(message: JSON) -> JSON:
    content: Any = message.get("content")
    if isinstance(content, str) or not content:
        return message
    parts: list[JSON] = []
    for part in content:
        upload = upload_in(part)
        # Addresses of files are kept, their contents are not.
        kept = upload is None or "://" in upload.source[:8]
        parts.append(part if kept else {"type": "text", "text": "[a file that was sent earlier]"})
    return {**message, "content": parts}


async def _with_result(call: ApiCall[Any, Any], kept: Kept) -> Kept:
    """Returns the kept answer with its result, and stores that, if its run has ended meanwhile."""
    if not kept.working:
        return kept
    database, begun = call.server.app.database, ResponseAnswer.model_validate(kept.answer)
    run_id, after_ask = await database.read(of_call, kept.dedup_key or "")
    if run_id is None:
        row = await database.read(inbox.by_dedup_key, kept.dedup_key or "")
        status = "queued" if row is not None else "failed"
        return replace(kept, answer=begun.model_copy(update={"status": status}).model_dump())
    found = await database.read(call_state, run_id, after_ask=after_ask)
    if found.working:
        return replace(kept, answer=begun.model_dump())
    try:
        answer = complete(begun, outcome_of(found))
    except ApiError as error:
        answer = failed_answer(begun, error)
    await database.write(responses.finish, kept.id, answer.model_dump(), run_id)
    # Read again: `finish` has noted where in the session the answer ends, which a continuation needs.
    return replace(await database.read(responses.get, kept.id, kept.key_name), answer=answer.model_dump())


@endpoint(
    "GET",
    "/v1/responses/{response_id}",
    "An answer that is kept",
    tag="OpenAI",
    scopes=(Scope.CHAT,),
    responses={200: ResponseAnswer},
)
async def get_response(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    kept = await call.server.app.database.read(responses.get, call.path["response_id"], call.key.name)
    return EndpointAnswer(body=ResponseAnswer.model_validate((await _with_result(call, kept)).answer))


@endpoint(
    "DELETE",
    "/v1/responses/{response_id}",
    "Forget it",
    tag="OpenAI",
    scopes=(Scope.CHAT,),
    responses={200: Deleted},
    refusals=(409,),
)
async def delete_response(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    return await _delete(call, call.path["response_id"], KeptKind.RESPONSE)


async def _delete(call: ApiCall[Any, Any], which: str, kind: KeptKind) -> EndpointAnswer:
    """Deletes a kept answer or conversation, and with the last of a chain its session."""
    app = call.server.app
    await app.database.read(responses.get, which, call.key.name, kind)
    orphans = await app.database.write(responses.remove, which)
    if orphans:
        await asyncio.to_thread(erase, app.home, app.database, orphans, by=call.key.account, now=app.clock())
    return EndpointAnswer(body=Deleted(id=which, object=kind if kind is KeptKind.RESPONSE else f"{kind}.deleted"))


@endpoint(
    "POST",
    "/v1/conversations",
    "A conversation for responses to go on in",
    tag="OpenAI",
    scopes=(Scope.CHAT,),
    responses={200: ConversationObject},
    headers=IDEMPOTENCY_HEADERS,
    refusals=(413, 422),
)
async def open_conversation(call: ApiCall[NewConversation, NoFields]) -> EndpointAnswer:
    from gateway.api.openai.responses import messages_of

    earlier = [_without_files(message) for message in messages_of(call.body.items or ())]
    metadata = call.body.metadata or {}

    def open_it(conn: Connection, now: int) -> str:
        which = f"conv_{secrets.token_hex(12)}"
        answer = ConversationObject(id=which, created_at=now // 1000, metadata=metadata).model_dump()
        new = Kept(
            id=which, key_name=call.key.name, kind=KeptKind.CONVERSATION, created_at=now, answer=answer, input=earlier
        )
        responses.keep(conn, new)
        return which

    return await _conversation(call, await run_once(call, open_it))


async def _conversation(call: ApiCall[Any, Any], which: str) -> EndpointAnswer:
    kept = await call.server.app.database.read(responses.get, which, call.key.name, KeptKind.CONVERSATION)
    return EndpointAnswer(body=ConversationObject.model_validate(kept.answer))


@endpoint(
    "GET",
    "/v1/conversations/{conversation_id}",
    "One of them",
    tag="OpenAI",
    scopes=(Scope.CHAT,),
    responses={200: ConversationObject},
)
async def get_conversation(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    return await _conversation(call, call.path["conversation_id"])


@endpoint(
    "DELETE",
    "/v1/conversations/{conversation_id}",
    "Forget it",
    tag="OpenAI",
    scopes=(Scope.CHAT,),
    responses={200: Deleted},
    refusals=(409,),
)
async def delete_conversation(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    return await _delete(call, call.path["conversation_id"], KeptKind.CONVERSATION)
