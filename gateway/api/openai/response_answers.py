"""Answers of the Responses API: complete, and as events."""

from typing import Any

from gateway.agent.models.interface import JSON
from gateway.api.http.endpoint import ApiCall, NoFields
from gateway.api.http.errors import ApiError
from gateway.api.http.sse import as_data
from gateway.api.openai.exchange import AGENT, Exchange, ExchangeOutcome
from gateway.api.openai.response_schemas import ResponseAnswer, ResponseRequest

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
    output += [_function_call(made, "completed") for made in outcome.tool_calls]
    cut = _CUT.get(outcome.finish_reason)
    return begun.model_copy(
        update={
            "status": _ended(outcome),
            "incomplete_details": {"reason": cut} if cut else None,
            "output": output,
            "usage": _usage(outcome),
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
        first = 1 if self.text else 0
        parts += [self._call(made, index) for index, made in enumerate(outcome.tool_calls, first)]
        done = self.complete(outcome)
        parts.append(self.event(f"response.{done.status}", response=done.model_dump()))
        return b"".join(parts)

    def _call(self, made: JSON, index: int) -> bytes:
        done = _function_call(made, "completed")
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
        return self.event("response.failed", response=failed_answer(self._unfinished, error).model_dump())


def _ended(outcome: ExchangeOutcome) -> str:
    return "incomplete" if outcome.finish_reason in _CUT else "completed"


def _text_part(text: str) -> JSON:
    return {"type": "output_text", "text": text, "annotations": []}


def _function_call(made: JSON, status: str) -> JSON:
    function = made["function"]
    return {
        "id": f"fc_{made['id']}",
        "type": "function_call",
        "status": status,
        "call_id": made["id"],
        "name": function["name"],
        "arguments": function["arguments"],
    }


def _usage(outcome: ExchangeOutcome) -> JSON:
    return {
        "input_tokens": outcome.input_tokens,
        "input_tokens_details": {"cached_tokens": outcome.cached_tokens},
        "output_tokens": outcome.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": outcome.input_tokens + outcome.output_tokens,
    }
