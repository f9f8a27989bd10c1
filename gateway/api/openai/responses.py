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
from gateway.api.openai.agent_calls import session_id
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
from gateway.api.openai.chat_schemas import HINTS, AudioPart
from gateway.api.openai.exchange import AgentCall, Exchange, ExchangeOutcome, text_pieces
from gateway.api.openai.response_schemas import (
    FunctionCall,
    FunctionOutput,
    FunctionTool,
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
        if not (isinstance(item, Reasoning) or (isinstance(item, InputMessage) and item.role in _LAYERED)):
            _append_item(messages, item)
    return messages


def _question(body: ResponseRequest, model: str | None) -> AgentCall:
    items = [InputMessage(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    layered = [body.instructions] if body.instructions else []
    layered += [_as_text(item.content) for item in items if isinstance(item, InputMessage) and item.role in _LAYERED]
    messages = messages_of(items)
    fields = body.model_dump(include={"temperature", "top_p", "parallel_tool_calls", *HINTS}, exclude_none=True)
    if body.tool_choice is not None:
        fields["tool_choice"] = _tool_choice(body.tool_choice)
    return AgentCall(
        messages=messages,
        options=CallOptions(
            layered=tuple(layered),
            tools=tuple(_tool(tool) for tool in body.tools or ()),
            model=model,
            response_format=_format(body),
            sampling=fields if body.tools else without_tool_fields(fields),
            max_output_tokens=body.max_output_tokens,
        ),
    )


def _append_item(messages: list[JSON], item: InputMessage | FunctionCall | FunctionOutput) -> None:
    match item:
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


def _tool(tool: FunctionTool) -> JSON:
    return {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}


def _tool_choice(choice: Any) -> Any:
    if isinstance(choice, str) or "name" not in choice:
        return choice
    return {"type": "function", "function": {"name": choice["name"]}}


def _format(body: ResponseRequest) -> JSON | None:
    wanted = body.text.format if body.text else None
    if wanted is None or wanted.get("type") == "text":
        return None
    if wanted.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {name: each for name, each in wanted.items() if name != "type"}}
    return wanted


# --- what is answered ---------------------------------------------------------------------------------------------------------


async def _stream(
    call: ApiCall[ResponseRequest, NoFields],
    under_way: Exchange,
    writer: Writer,
    headers: Mapping[str, str],
    kept: AgentCall | None,
) -> web.StreamResponse:
    stream = EventStream(call.request, call.require_access, headers)
    try:
        await _write(call, under_way, writer, stream, kept)
        await stream.end()
    except ApiError as error:
        if not stream.started:
            raise
        await stream.fail(writer.failed(error))
    except ConnectionError:
        pass  # the reader has gone; the run of a session goes on
    return stream.response


async def _write(
    call: ApiCall[ResponseRequest, NoFields],
    under_way: Exchange,
    writer: Writer,
    stream: EventStream,
    kept: AgentCall | None,
) -> None:
    opening, held_back = writer.begin(), b""
    async with aclosing(text_pieces(under_way, call.server.intervals.keep_alive)) as coming:
        async for piece in coming:
            match piece:
                case None:
                    await stream.write(opening or KEEP_ALIVE)
                    opening = b""
                case str() if under_way.feed.has_text:
                    await stream.write(opening + writer.text_delta(piece), hint_warning(call))
                    opening = b""
                case str():  # a question: its header is known with the outcome, which is next
                    held_back = opening + writer.text_delta(piece)
                    opening = b""
                case ExchangeOutcome():
                    last = held_back + writer.finish(piece)
                    if kept is not None:  # before the last event: whoever has read that may continue the answer at once
                        await keep_answer(call, under_way, kept, writer.complete(piece))
                    await stream.write(opening + last, {**status_header(piece), **hint_warning(call)})
