"""`/v1/responses`: the same exchanges in the form of the Responses API."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from aiohttp import web

from gateway.agent.models.interface import JSON
from gateway.api.http.callers import Scope
from gateway.api.http.endpoint import ApiCall, EndpointAnswer, NoFields, endpoint
from gateway.api.http.errors import ApiError
from gateway.api.http.sse import KEEP_ALIVE, EventStream
from gateway.api.openai.agent_calls import AgentCall, Exchange, ExchangeOutcome, session_id, text_pieces
from gateway.api.openai.chat import (
    ANSWER_HEADERS,
    SESSION_HEADERS,
    counted,
    exchange,
    hint_warning,
    status_header,
    wanted_model,
    without_tool_fields,
)
from gateway.api.openai.schemas import (
    HINTS,
    AudioPart,
    FunctionCall,
    FunctionOutput,
    InputFile,
    InputImage,
    InputMessage,
    InputText,
    Item,
    Reasoning,
    ResponseAnswer,
    ResponseRequest,
)
from gateway.api.openai.stored_responses import Writer, begin, begun_answer, keep_answer
from sessions.records import CallOptions

_LAYERED = frozenset({"system", "developer"})


@endpoint(
    "POST",
    "/v1/responses",
    "Ask the agent, in the words of the Responses API",
    tag="OpenAI",
    scopes=(Scope.CHAT,),
    responses={200: ResponseAnswer},
    headers=SESSION_HEADERS,
    response_headers=ANSWER_HEADERS,
    refusals=(409, 413, 422),
    large=True,
    streams=True,
)
async def respond(call: ApiCall[ResponseRequest, NoFields]) -> EndpointAnswer | web.StreamResponse:
    body, question = call.body, _question(call.body, wanted_model(call, call.body.model))
    on_session = session_id(call) is not None
    goes_on = body.previous_response_id is not None or body.conversation is not None or bool(body.background)
    way = _continued(call, question) if goes_on and not on_session else exchange(call, question)
    async with way as (under_way, headers):
        writer = Writer(call, under_way)
        kept = None if on_session or body.store is False else question
        if body.background and not on_session and not body.stream:
            return EndpointAnswer(body=begun_answer(call, under_way))
        if body.stream:
            return await _stream(call, under_way, writer, headers, kept)
        outcome = await under_way.outcome()
        answer = writer.complete(outcome)
        if kept is not None:
            await keep_answer(call, under_way, kept, answer)
        return EndpointAnswer(body=answer, headers={**headers, **status_header(outcome), **hint_warning(call)})


@asynccontextmanager
async def _continued(
    call: ApiCall[ResponseRequest, NoFields], question: AgentCall
) -> AsyncGenerator[tuple[Exchange, dict[str, str]]]:
    async with counted(call), begin(call, question) as under_way:
        yield under_way, {}


# --- what is asked ------------------------------------------------------------------------------------------------------------


def messages_of(items: Iterable[Item]) -> list[JSON]:
    """Returns the input as messages of Chat Completions, without system messages."""
    messages: list[JSON] = []
    for item in items:
        match item:
            case Reasoning() | InputMessage(role="system" | "developer"):
                pass
            case InputMessage(role="assistant"):
                messages.append({"role": "assistant", "content": _as_text(item.content)})
            case InputMessage():
                content = item.content if isinstance(item.content, str) else [_part(part) for part in item.content]
                messages.append({"role": "user", "content": content})
            case FunctionCall():
                function = {"name": item.name, "arguments": item.arguments}
                made = {"id": item.call_id, "type": "function", "function": function}
                # Responses has calls as items of their own; Chat Completions has them in the assistant's message before them.
                if messages and messages[-1]["role"] == "assistant":
                    last = messages[-1]
                    messages[-1] = {**last, "tool_calls": [*last.get("tool_calls", ()), made]}
                else:
                    messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
            case FunctionOutput():
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _as_text(item.output)})
    return messages


def _question(body: ResponseRequest, model: str | None) -> AgentCall:
    items = [InputMessage(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    layered = [body.instructions] if body.instructions else []
    layered += [_as_text(item.content) for item in items if isinstance(item, InputMessage) and item.role in _LAYERED]
    fields = body.model_dump(include={"temperature", "top_p", "parallel_tool_calls", *HINTS}, exclude_none=True)
    match body.tool_choice:
        case None:
            pass
        case {"name": name}:
            fields["tool_choice"] = {"type": "function", "function": {"name": name}}
        case choice:
            fields["tool_choice"] = choice
    form = body.text.format if body.text else None
    if form is not None and form.get("type") == "text":
        form = None
    if form is not None and form.get("type") == "json_schema":
        form = {"type": "json_schema", "json_schema": {name: each for name, each in form.items() if name != "type"}}
    return AgentCall(
        messages=messages_of(items),
        options=CallOptions(
            layered=tuple(layered),
            tools=tuple(
                {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}
                for tool in body.tools or ()
            ),
            model=model,
            response_format=form,
            sampling=fields if body.tools else without_tool_fields(fields),
            max_output_tokens=body.max_output_tokens,
        ),
    )


def _as_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, InputText))


def _part(part: InputText | InputImage | InputFile | AudioPart) -> JSON:
    match part:
        case InputText():
            return {"type": "text", "text": part.text}
        case InputImage():
            detail = {"detail": part.detail} if part.detail else {}
            return {"type": "image_url", "image_url": {"url": part.image_url, **detail}}
        case AudioPart():
            return part.model_dump()
        case InputFile():
            return {"type": "file", "file": part.model_dump(exclude={"type"}, exclude_none=True)}


# --- what is answered ---------------------------------------------------------------------------------------------------------


async def _stream(
    call: ApiCall[ResponseRequest, NoFields],
    under_way: Exchange,
    writer: Writer,
    headers: Mapping[str, str],
    kept: AgentCall | None,
) -> web.StreamResponse:
    stream = EventStream(call.request, call.require_access, headers)
    unsent, held_back = writer.begin(), b""
    try:
        async with aclosing(text_pieces(under_way, call.server.intervals.keep_alive)) as coming:
            async for piece in coming:
                match piece:
                    case None:
                        await stream.write(unsent or KEEP_ALIVE)
                        unsent = b""
                    case str() if under_way.feed.has_text:
                        await stream.write(unsent + writer.text_delta(piece), hint_warning(call))
                        unsent = b""
                    case str():  # a question: its header is known with the outcome, which is next
                        held_back = unsent + writer.text_delta(piece)
                        unsent = b""
                    case ExchangeOutcome():
                        last = held_back + writer.finish(piece)
                        if kept is not None:  # before the last event: whoever has read that may continue it at once
                            await keep_answer(call, under_way, kept, writer.complete(piece))
                        await stream.write(unsent + last, {**status_header(piece), **hint_warning(call)})
        await stream.end()
    except ApiError as error:
        if not stream.started:
            raise
        await stream.fail(writer.failed(error))
    except ConnectionError:
        pass  # the reader has gone; the run of a session goes on
    return stream.response
