"""`/v1/chat/completions` and `/v1/models`."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

from aiohttp import web

from gateway.agent.models.interface import JSON
from gateway.api.http.callers import Scope
from gateway.api.http.endpoint import ApiCall, EndpointAnswer, NoFields, endpoint
from gateway.api.http.errors import ApiError
from gateway.api.http.idempotency import IDEMPOTENCY, mark
from gateway.api.http.sse import EventStream, as_data
from gateway.api.openai.agent_calls import (
    AGENT,
    HEADER,
    AgentCall,
    Exchange,
    ExchangeOutcome,
    TargetSession,
    call_on_session,
    call_without_session,
    session_id,
    text_pieces,
)
from gateway.api.openai.schemas import (
    HINTS,
    AnswerMessage,
    ChatAnswer,
    ChatRequest,
    Choice,
    ModelList,
    ModelRow,
    UsageSchema,
)
from sessions.keys import SessionKey
from sessions.records import CallOptions

STATUS = "X-Hermes-Run-Status"
SESSION_HEADERS = {
    HEADER: "The session that this call belongs to; it is held here",
    IDEMPOTENCY: "Within a session: the same key and body again give the answer of the first time",
}
_SAMPLING = frozenset(
    {
        "temperature",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "stop",
        "reasoning_effort",
        "logit_bias",
        "verbosity",
        "tool_choice",
        "parallel_tool_calls",
        *HINTS,
    }
)


ANSWER_HEADERS = {
    HEADER: "The session id, as it was sent",
    "Warning": "Sampling hints that the endpoint does not take, and that were left out",
    STATUS: "waiting_on_human: the answer is a question, and the next call on this session answers it. Else completed",
}


@endpoint(
    "GET",
    "/v1/models",
    "The models that may be asked for",
    tag="OpenAI",
    scopes=(Scope.CHAT, Scope.READ),
    responses={200: ModelList},
)
async def models(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    names = dict.fromkeys((AGENT, *call.server.app.chosen.names(call.server.app.config.model)))
    return EndpointAnswer(body=ModelList(data=[ModelRow(id=name) for name in names]))


@endpoint(
    "GET", "/v1/models/{model}", "One of them", tag="OpenAI", scopes=(Scope.CHAT, Scope.READ), responses={200: ModelRow}
)
async def retrieve_model(call: ApiCall[NoFields, NoFields]) -> EndpointAnswer:
    name = call.path["model"]
    wanted_model(call, name)
    return EndpointAnswer(body=ModelRow(id=name))


def wanted_model(call: ApiCall[Any, Any], name: str | None) -> str | None:
    """Returns the configured model of this name; None where the usual one is to answer. Raises ApiError for a name that stands for none."""
    if not name or name == AGENT:
        return None
    if name not in call.server.app.chosen.names(call.server.app.config.model):
        message = f"There is no model {name!r}. Write {AGENT}, or a name that GET /v1/models lists."
        raise ApiError(404, message, code="model_not_found", param="model")
    return name


def hint_warning(call: ApiCall[Any, Any]) -> dict[str, str]:
    """Returns the header that names the sampling hints of this call which its model does not get; none where it gets all."""
    hints = call.body.model_dump(include=set(HINTS), exclude_none=True)
    if not hints:
        return {}
    left_out = call.server.app.model.left_out(hints, wanted_model(call, call.body.model))
    return {"Warning": f'299 hermes "left out: {", ".join(sorted(left_out))}"'} if left_out else {}


@endpoint(
    "POST",
    "/v1/chat/completions",
    "Ask the agent; with a session id what was said is held here",
    tag="OpenAI",
    scopes=(Scope.CHAT,),
    responses={200: ChatAnswer},
    headers=SESSION_HEADERS,
    response_headers=ANSWER_HEADERS,
    refusals=(409, 413, 422),
    large=True,
    streams=True,
)
async def complete(call: ApiCall[ChatRequest, NoFields]) -> EndpointAnswer | web.StreamResponse:
    question = _question(call.body, wanted_model(call, call.body.model))
    async with exchange(call, question) as (under_way, headers):
        if call.body.stream:
            stream = EventStream(call.request, call.require_access, headers)
            try:
                await _write(call, under_way, stream)
                await stream.end()
            except ApiError as error:
                if not stream.started:
                    raise
                await stream.fail(as_data(error.body()))
            except ConnectionError:
                pass  # the reader has gone; the run of a session goes on
            return stream.response
        outcome = await under_way.outcome()
        return EndpointAnswer(
            body=_complete_answer(call, under_way, outcome),
            headers={**headers, **status_header(outcome), **hint_warning(call)},
        )


@asynccontextmanager
async def exchange(call: ApiCall[Any, Any], question: AgentCall) -> AsyncGenerator[tuple[Exchange, dict[str, str]]]:
    """Yields the exchange for this call, on its session when it names one, and the headers of the answer."""
    session = session_id(call)
    mark(call)  # refuses a bad one; a call without a session is not kept, so nothing can recognise it
    headers = {} if session is None else {HEADER: session}
    way: AbstractAsyncContextManager[Exchange] = (
        call_without_session(call, question)
        if session is None
        else call_on_session(call, question, TargetSession(key=SessionKey.api(call.key.name, session), name=session))
    )
    try:
        async with counted(call), way as under_way:
            yield under_way, headers
    except ApiError as error:
        error.headers |= headers  # a refusal names the session too
        raise


@asynccontextmanager
async def counted(call: ApiCall[Any, Any]) -> AsyncGenerator[None]:
    """Counts a message that comes in, and its answer when the block ends without an error."""
    metrics, began = call.server.app.metrics, call.server.clock()
    metrics.message("api", "in")
    yield
    metrics.message("api", "out")
    metrics.replied("api", call.server.clock() - began)


def status_header(outcome: ExchangeOutcome) -> dict[str, str]:
    return {STATUS: "waiting_on_human" if outcome.waiting else "completed"}


def _question(body: ChatRequest, model: str | None) -> AgentCall:
    layered: list[str] = []
    messages: list[JSON] = []
    for each in body.messages:
        message = each.model_dump(exclude_unset=True, exclude_none=True)
        match message["role"]:
            case "system" | "developer":
                layered.append(_as_text(message["content"]))
                continue
            case "tool":
                message["content"] = _as_text(message["content"])
            case "assistant" if not message.get("tool_calls"):
                message.pop("tool_calls", None)  # some libraries send an empty list, which endpoints refuse
                message["content"] = _as_text(message.get("content", ""))
            case _:
                pass
        messages.append(message)
    fields = body.model_dump(include=set(_SAMPLING), exclude_none=True)
    return AgentCall(
        messages=messages,
        options=CallOptions(
            layered=tuple(layered),
            tools=tuple(tool.model_dump(exclude_unset=True, exclude_none=True) for tool in body.tools or ()),
            model=model,
            response_format=body.response_format,
            sampling=fields if body.tools else without_tool_fields(fields),
            max_output_tokens=body.max_completion_tokens or body.max_tokens,
        ),
    )


def without_tool_fields(fields: JSON) -> JSON:
    """Returns the fields without those that endpoints refuse in a request without tools."""
    return {name: value for name, value in fields.items() if name not in {"tool_choice", "parallel_tool_calls"}}


def _as_text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _complete_answer(call: ApiCall[ChatRequest, NoFields], under_way: Exchange, outcome: ExchangeOutcome) -> ChatAnswer:
    message = AnswerMessage(
        content=outcome.text if outcome.text or not outcome.tool_calls else None,
        tool_calls=[dict(made) for made in outcome.tool_calls] or None,
    )
    return ChatAnswer(
        id=f"chatcmpl-{under_way.id}",
        created=under_way.came_at // 1000,
        model=call.body.model or AGENT,
        choices=[Choice(message=message, finish_reason=outcome.finish_reason)],
        usage=_usage(outcome),
    )


def _usage(outcome: ExchangeOutcome) -> UsageSchema:
    return UsageSchema(
        prompt_tokens=outcome.input_tokens,
        completion_tokens=outcome.output_tokens,
        total_tokens=outcome.input_tokens + outcome.output_tokens,
        prompt_tokens_details={"cached_tokens": outcome.cached_tokens},
    )


async def _write(call: ApiCall[ChatRequest, NoFields], under_way: Exchange, stream: EventStream) -> None:
    """Writes the answer as chunks: its text as it comes, then the calls of tools, the reason of the end, and what it has cost."""
    options = call.body.stream_options
    with_usage = options is not None and bool(options.include_usage)
    head: JSON = {
        "id": f"chatcmpl-{under_way.id}",
        "object": "chat.completion.chunk",
        "created": under_way.came_at // 1000,
        "model": call.body.model or AGENT,
        **({"usage": None} if with_usage else {}),
    }

    def chunk(delta: JSON, finish_reason: str | None = None) -> bytes:
        return as_data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})

    first: JSON = {"role": "assistant", "content": ""}
    held_back = ""
    async with aclosing(text_pieces(under_way, call.server.intervals.keep_alive)) as coming:
        async for piece in coming:
            match piece:
                case None:
                    await stream.keep_alive()
                case str() if not under_way.feed.has_text:
                    held_back = piece  # a question: its header is known with the outcome, which is next
                case str():
                    written, first = chunk({**first, "content": piece}), {}
                    await stream.write(written, {} if stream.started else hint_warning(call))
                case ExchangeOutcome() as outcome:
                    parts = [chunk({**first, "content": held_back})] if first else []
                    if outcome.tool_calls:
                        calls = [{**made, "index": number} for number, made in enumerate(outcome.tool_calls)]
                        parts.append(chunk({"tool_calls": calls}))
                    parts.append(chunk({}, outcome.finish_reason))
                    if with_usage:
                        parts.append(as_data({**head, "choices": [], "usage": _usage(outcome).model_dump()}))
                    parts.append(b"data: [DONE]\n\n")
                    # One write: where nothing was streamed before, the headers go out with it, and now the status is known.
                    await stream.write(b"".join(parts), {**status_header(outcome), **hint_warning(call)})
                    return
