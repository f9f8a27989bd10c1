"""`/v1/responses`: the same calls in the words of the Responses API."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

from aiohttp import web

from gateway.agent.asking import JSON
from gateway.api.asking import Exchange, Outcome, Question, pieces
from gateway.api.completions import GIVEN, ON_A_SESSION, exchange, status_header, without_tool_fields
from gateway.api.contract import Answer, Call, Endpoint, Nothing
from gateway.api.errors import ApiError
from gateway.api.held import HEADER, session_id
from gateway.api.keys import Scope
from gateway.api.response_words import (
    FunctionCall,
    FunctionOutput,
    FunctionTool,
    InputFile,
    InputImage,
    InputMessage,
    InputText,
    Reasoning,
    ResponseAnswer,
    ResponseRequest,
)
from gateway.api.streams import Stream, as_data

_LAYERED = frozenset({"system", "developer"})
_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}


async def respond(call: Call[ResponseRequest, Nothing]) -> Answer | web.StreamResponse:
    body = call.body
    if body.previous_response_id is not None and session_id(call) is None:
        message = (
            f"There is no such response: they are not kept by id. Send {HEADER}, and the conversation is held here."
        )
        raise ApiError(404, message, code="previous_response_not_found", param="previous_response_id")
    async with exchange(call, _question(body, call.desk.api.models())) as (under_way, headers):
        writer = _Writer(call, under_way)
        if body.stream:
            return await _stream(call, under_way, writer, headers)
        outcome = await under_way.outcome()
        return Answer(body=writer.whole(outcome), headers={**headers, **status_header(outcome)})


# --- what is asked ------------------------------------------------------------------------------------------------------------


def _question(body: ResponseRequest, known: Any) -> Question:
    items = [InputMessage(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    messages: list[JSON] = []
    layered = [body.instructions] if body.instructions else []
    for item in items:
        match item:
            case InputMessage() if item.role in _LAYERED:
                layered.append(_flat(item.content))
            case Reasoning():
                pass
            case _:
                _add(messages, item)
    fields = body.model_dump(include={"temperature", "top_p", "parallel_tool_calls"}, exclude_none=True)
    if body.tool_choice is not None:
        fields["tool_choice"] = _tool_choice(body.tool_choice)
    return Question(
        messages=messages,
        layered=layered,
        tools=[_tool(tool) for tool in body.tools or ()],
        model=body.model if body.model in known else None,
        response_format=_format(body),
        sampling=fields if body.tools else without_tool_fields(fields),
        max_output_tokens=body.max_output_tokens,
    )


def _add(messages: list[JSON], item: InputMessage | FunctionCall | FunctionOutput) -> None:
    match item:
        case InputMessage(role="assistant"):
            messages.append({"role": "assistant", "content": _flat(item.content)})
        case InputMessage():
            content = item.content if isinstance(item.content, str) else [_part(part) for part in item.content]
            messages.append({"role": "user", "content": content})
        case FunctionCall():
            function = {"name": item.name, "arguments": item.arguments}
            made = {"id": item.call_id, "type": "function", "function": function}
            if messages and messages[-1]["role"] == "assistant":
                last = messages[-1]
                messages[-1] = {**last, "tool_calls": [*last.get("tool_calls", ()), made]}
            else:
                messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
        case FunctionOutput():
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _flat(item.output)})


def _flat(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, InputText))


def _part(part: InputText | InputImage | InputFile) -> JSON:
    match part:
        case InputText():
            return {"type": "text", "text": part.text}
        case InputImage():
            detail = {"detail": part.detail} if part.detail else {}
            return {"type": "image_url", "image_url": {"url": part.image_url, **detail}}
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


class _Writer:
    """Builds the answer, and numbers its events."""

    def __init__(self, call: Call[ResponseRequest, Nothing], under_way: Exchange) -> None:
        body = call.body
        self._empty = ResponseAnswer(
            id=f"resp_{under_way.id}",
            created_at=under_way.came_at // 1000,
            status="in_progress",
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            model=body.model or call.desk.api.models()[0],
            temperature=body.temperature,
            top_p=body.top_p,
            tool_choice=body.tool_choice or "auto",
            tools=[tool.model_dump(exclude_none=True) for tool in body.tools or ()],
            metadata=body.metadata or {},
        )
        self._message_id = f"msg_{under_way.id}"
        self._number = 0
        self.text = ""

    def whole(self, outcome: Outcome, text: str | None = None) -> ResponseAnswer:
        """`text`: what was streamed, where it is more than the last words."""
        said = outcome.text if text is None else text
        output = [self._message(said, _ended(outcome))] if said or not outcome.tool_calls else []
        output += [_called(made, "completed") for made in outcome.tool_calls]
        cut = _CUT.get(outcome.finish_reason)
        return self._empty.model_copy(
            update={
                "status": _ended(outcome),
                "incomplete_details": {"reason": cut} if cut else None,
                "output": output,
                "usage": _usage(outcome),
            }
        )

    def _message(self, text: str, status: str) -> JSON:
        content = [] if status == "in_progress" else [_words(text)]
        return {"id": self._message_id, "type": "message", "status": status, "role": "assistant", "content": content}

    def event(self, kind: str, **fields: Any) -> bytes:
        data = as_data({"type": kind, "sequence_number": self._number, **fields}, kind)
        self._number += 1
        return data

    def begin(self) -> bytes:
        empty = self._empty.model_dump()
        return self.event("response.created", response=empty) + self.event("response.in_progress", response=empty)

    def words(self, text: str) -> bytes:
        opening = b"" if self.text else self._open_message()
        self.text += text
        return opening + self.event("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def _place(self) -> JSON:
        return {"item_id": self._message_id, "output_index": 0, "content_index": 0}

    def _open_message(self) -> bytes:
        part = _words("")
        added = self.event("response.output_item.added", output_index=0, item=self._message("", "in_progress"))
        return added + self.event("response.content_part.added", **self._place(), part=part)

    def finish(self, outcome: Outcome) -> bytes:
        parts: list[bytes] = []
        if not self.text and not outcome.tool_calls:
            parts.append(self._open_message())
        if self.text or not outcome.tool_calls:
            part = _words(self.text)
            parts.append(self.event("response.output_text.done", **self._place(), text=self.text, logprobs=[]))
            parts.append(self.event("response.content_part.done", **self._place(), part=part))
            item = self._message(self.text, _ended(outcome))
            parts.append(self.event("response.output_item.done", output_index=0, item=item))
        first = 1 if self.text else 0
        parts += [self._call(made, index) for index, made in enumerate(outcome.tool_calls, first)]
        whole = self.whole(outcome, self.text)
        parts.append(self.event(f"response.{whole.status}", response=whole.model_dump()))
        return b"".join(parts)

    def _call(self, made: JSON, index: int) -> bytes:
        done = _called(made, "completed")
        arguments, where = done["arguments"], {"item_id": done["id"], "output_index": index}
        return b"".join(
            [
                self.event(
                    "response.output_item.added",
                    output_index=index,
                    item={**done, "arguments": "", "status": "in_progress"},
                ),
                self.event("response.function_call_arguments.delta", **where, delta=arguments),
                self.event("response.function_call_arguments.done", **where, name=done["name"], arguments=arguments),
                self.event("response.output_item.done", output_index=index, item=done),
            ]
        )

    def failed(self, error: ApiError) -> bytes:
        told = {"code": "server_error", "message": error.message}
        answer = self._empty.model_copy(update={"status": "failed", "error": told})
        return self.event("response.failed", response=answer.model_dump())


def _ended(outcome: Outcome) -> str:
    return "incomplete" if outcome.finish_reason in _CUT else "completed"


def _words(text: str) -> JSON:
    return {"type": "output_text", "text": text, "annotations": []}


def _called(made: JSON, status: str) -> JSON:
    function = made["function"]
    return {
        "id": f"fc_{made['id']}",
        "type": "function_call",
        "status": status,
        "call_id": made["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }


def _usage(outcome: Outcome) -> JSON:
    return {
        "input_tokens": outcome.input_tokens,
        "input_tokens_details": {"cached_tokens": outcome.cached_tokens},
        "output_tokens": outcome.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": outcome.input_tokens + outcome.output_tokens,
    }


async def _stream(
    call: Call[ResponseRequest, Nothing], under_way: Exchange, writer: _Writer, headers: Mapping[str, str]
) -> web.StreamResponse:
    stream = Stream(call.request, call.require_access, headers)
    try:
        await _write(call, under_way, writer, stream)
        await stream.end()
    except ApiError as error:
        if not stream.begun:
            raise
        await stream.fail(writer.failed(error))
    except ConnectionError:
        pass  # the reader has gone; the run of a session goes on
    return stream.response


async def _write(call: Call[ResponseRequest, Nothing], under_way: Exchange, writer: _Writer, stream: Stream) -> None:
    begin, held_back = writer.begin(), b""
    async with aclosing(pieces(under_way, call.desk.api.pauses.keep_alive)) as coming:
        async for piece in coming:
            match piece:
                case None:
                    await stream.write(begin or b": keep-alive\n\n")
                    begin = b""
                case str() if under_way.feed.said:
                    await stream.write(begin + writer.words(piece))
                    begin = b""
                case str():  # a question: its header is known with the outcome, which is next
                    held_back = begin + writer.words(piece)
                    begin = b""
                case Outcome():
                    await stream.write(begin + held_back + writer.finish(piece), status_header(piece))


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/responses",
        run=respond,
        summary="Ask the agent, in the words of the Responses API",
        tag="OpenAI",
        scopes=(Scope.CHAT,),
        body=ResponseRequest,
        headers=ON_A_SESSION,
        gives=GIVEN,
        answers={200: ResponseAnswer},
        refusals=(409, 413, 422),
        large=True,
        streams=True,
    ),
)
