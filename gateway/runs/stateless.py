"""Calls without a session: the caller holds the transcript, and nothing is kept."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

from gateway.agent.house_prompt import house_blocks
from gateway.agent.loop import Result, Situation
from gateway.agent.models.interface import (
    AFRESH,
    JSON,
    Answer,
    ContextOverflow,
    InputTooLong,
    ModelRequest,
    ToolCall,
    Usage,
)
from gateway.agent.tools.registry import Toolbox, ToolContext
from gateway.runs.budget import BudgetUse, day_of
from gateway.runs.live_events import LiveEvent
from gateway.runs.services import Services
from gateway.texts import say
from sessions import ids, spending
from sessions.records import Message, MessageState, Role, Run, RunKind, RunStatus, Session, Source

WITHOUT_NAMESPACE = frozenset({"web_fetch"})
_CUT_OFF = "[not executed: the answer was cut off by the output limit; write less, or in several steps]"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatelessRequest:
    """The caller's request. Calls of `tools` go back to the caller."""

    messages: Sequence[JSON]
    layered: Sequence[str] = ()
    tools: Sequence[JSON] = ()
    model: str | None = None
    response_format: JSON | None = None
    sampling: JSON = field(default_factory=dict[str, Any])
    max_output_tokens: int | None = None
    without_tools: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StatelessAnswer:
    """The answer. `finish_reason` as at OpenAI."""

    text: str
    tool_calls: Sequence[JSON] = ()
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)


class StatelessSteps:
    """Implements `gateway.agent.loop.Work` in memory. `hear` is told the words as they come."""

    def __init__(self, house: Services, passed: StatelessRequest, hear: Callable[[LiveEvent], None]) -> None:
        self._house = house
        self._passed = passed
        self._hear = hear
        self._id = ids.new_id("run")
        now = house.clock()
        self._session = _session(self._id, now)
        profile = house.profile(_run(self._id, now), self._session)
        names = {tool["function"]["name"] for tool in passed.tools}
        allowed = set[str]() if passed.without_tools else WITHOUT_NAMESPACE - names
        self._toolbox = Toolbox({name: tool for name, tool in profile.toolbox.tools.items() if name in allowed})
        self._callers = names
        system = "\n\n".join(
            [
                profile.system_prompt.strip(),
                "\n\n".join(house_blocks(self._session, "", frozenset(self._toolbox.tools))),
                *passed.layered,
            ]
        )
        self._model = passed.model or profile.model
        self._transcript: list[JSON] = [{"role": "system", "content": system}, *_alternate(_complete(passed.messages))]
        _add_time(self._transcript, now, house.timezone)
        self._calls: list[Message] = []
        self._steps = 0
        self._used = Usage()
        self._began = time.monotonic()
        self._given: StatelessAnswer | None = None

    @property
    def given(self) -> StatelessAnswer:
        if self._given is None:
            raise RuntimeError("the work is not done")
        return replace(self._given, usage=self._used)

    # --- looking ---

    async def look(self) -> Situation:
        return Situation(calls=tuple(self._calls), limit=await self._limit_reached())

    async def _limit_reached(self) -> str | None:
        limits, used = self._house.limits(), self._used
        today = await self._house.database.read(spending.of_day, self._day()) if limits.per_day else (0, 0)
        tokens = used.input_tokens + used.output_tokens
        seconds = time.monotonic() - self._began
        return limits.reached(BudgetUse(steps=self._steps, tokens=tokens, seconds=seconds, today=today))

    def _day(self) -> str:
        return day_of(self._house.clock())

    async def fold(self) -> None:
        """Nothing ever comes in."""

    # --- the model ---

    async def ask_model(self) -> Answer:
        try:
            answer = await self._house.model().ask(await self._request(), self._on_token)
        except ContextOverflow as error:  # the transcript is the caller's: it is not ours to shorten
            raise error.for_good() from error
        self._hear(LiveEvent(self._id, "said"))
        await self._count(answer.usage)
        return answer

    async def _request(self) -> ModelRequest:
        """All that the caller sent, and the gateway's tools if there is room for them. Raises InputTooLong."""
        passed, tokens = self._passed, self._house.tokens
        await self._house.model().learn_window(self._model)
        window = self._house.window(self._model)
        model, ours = self._model or "", self._toolbox.schemas
        size = tokens.messages(self._transcript, model) + tokens.tools(passed.tools, model)
        if size > window.whole:
            raise InputTooLong.of(size, window.size, self._model)
        if (with_ours := size + tokens.tools(ours, model)) <= window.room:
            size, tools = with_ours, [*ours, *passed.tools]
        else:
            tools = list(passed.tools)
        return ModelRequest(
            messages=self._transcript,
            tools=tools,
            model=self._model,
            max_output_tokens=window.answer_beside(size, passed.max_output_tokens),
            response_format=passed.response_format,
            options=passed.sampling,
            exact=True,
        )

    def _on_token(self, text: str) -> None:
        self._hear(LiveEvent(self._id, "afresh" if text == AFRESH else "token", text))

    async def _count(self, usage: Usage) -> None:
        self._steps += 1
        self._used = Usage(
            input_tokens=self._used.input_tokens + usage.input_tokens,
            output_tokens=self._used.output_tokens + usage.output_tokens,
            cached_tokens=self._used.cached_tokens + usage.cached_tokens,
        )
        await self._house.database.write(spending.add, self._day(), usage.input_tokens, usage.output_tokens)

    async def answered(self, answer: Answer) -> None:
        calls = [_as_sent(call) for call in answer.tool_calls]
        self._transcript.append({"role": "assistant", "content": answer.text or None, "tool_calls": calls})
        now = self._house.clock()
        self._calls = [_row(number, call, now) for number, call in enumerate(calls)]
        if answer.finish_reason == "length":
            for call in tuple(self._calls):
                await self.done(call, Result(content=_CUT_OFF))

    async def finish(self, answer: Answer) -> bool:
        self._given = StatelessAnswer(text=answer.text, finish_reason=answer.finish_reason)
        return True

    async def end_over_budget(self, limit: str) -> None:
        self._given = StatelessAnswer(text=say("budget.run", limit=limit), finish_reason="length")

    async def hand_over(self) -> None:
        last = next(turn for turn in reversed(self._transcript) if turn["role"] == "assistant")
        left = {call.tool_call_id for call in self._calls}
        calls = [call for call in last["tool_calls"] if call["id"] in left]
        self._given = StatelessAnswer(text=last["content"] or "", tool_calls=calls, finish_reason="tool_calls")

    # --- the tools ---

    def is_callers(self, call: Message) -> bool:
        return call.tool_name in self._callers

    def may_run_beside_others(self, call: Message) -> bool:
        tool = self._toolbox.get(call.tool_name or "")
        return tool is not None and tool.reads_only

    def may_repeat(self, call: Message) -> bool:
        return call.state is not MessageState.STARTED

    async def run_tool(self, call: Message) -> Result:
        tool = self._toolbox.get(call.tool_name or "")
        if tool is None:
            return Result(content=f"[there is no tool {call.tool_name} here]")
        self._hear(LiveEvent(self._id, "tool", tool.name))
        outcome = await tool.run(self._place(), call.content or "{}")
        self._hear(LiveEvent(self._id, "tool_done", tool.name))
        return Result(content=outcome if isinstance(outcome, str) else "[nobody can be asked here]")

    async def done(self, call: Message, result: Result) -> None:
        self._transcript.append({"role": "tool", "tool_call_id": call.tool_call_id, "content": result.content})
        self._calls = [other for other in self._calls if other.id != call.id]

    def _place(self) -> ToolContext:
        return ToolContext(
            session=self._session,
            database=self._house.database,
            workspace=Path("/nonexistent"),
            skills=Path("/nonexistent"),
            outgoing=Path("/nonexistent"),
            clock=self._house.clock,
            idem_key=self._id,
            run_id=self._id,
        )

    @property
    def parked(self) -> bool:
        return False

    @property
    def draining(self) -> bool:
        return False


def _as_sent(call: ToolCall) -> JSON:
    """With every field that the endpoint sent: it may want them back."""
    raw = dict(call.raw)
    function = {"name": call.name, "arguments": call.arguments, **dict(raw.get("function") or {})}
    return {"type": "function", **raw, "id": call.id, "function": function}


def _row(number: int, call: JSON, now: int) -> Message:
    """A call that is still to be done; its arguments are kept as the content until there is a result."""
    return Message(
        id=number,
        session_id="",
        run_id=None,
        role=Role.TOOL,
        content=call["function"]["arguments"],
        tool_calls=None,
        tool_call_id=call["id"],
        tool_name=call["function"]["name"],
        token_count=None,
        created_at=now,
        sender=None,
        attachments=None,
        state=MessageState.PENDING,
        idem_key=None,
    )


def _complete(messages: Sequence[JSON]) -> list[JSON]:
    """Each call directly followed by its result, and no result without its call: endpoints refuse anything else."""
    results = {turn.get("tool_call_id"): turn for turn in messages if turn["role"] == "tool"}
    complete: list[JSON] = []
    for turn in messages:
        if turn["role"] == "tool":
            continue
        complete.append(turn)
        for call in turn.get("tool_calls") or ():
            note = "[no result: the caller went on without it]"
            complete.append(results.get(call["id"], {"role": "tool", "tool_call_id": call["id"], "content": note}))
    return complete


def _alternate(turns: Sequence[JSON]) -> list[JSON]:
    """Neighbours of one role become one message."""
    merged: list[JSON] = []
    for turn in turns:
        last = merged[-1] if merged else {}
        same = last.get("role") == turn["role"] and turn["role"] in {"user", "assistant"}
        if same and not (last.get("tool_calls") or turn.get("tool_calls")):
            merged[-1] = {**last, "content": [*_parts(last.get("content")), *_parts(turn.get("content"))]}
        else:
            merged.append(turn)
    return merged


def _parts(content: Any) -> list[JSON]:
    if isinstance(content, str) or content is None:
        return [{"type": "text", "text": content or ""}]
    return list(cast(Sequence[JSON], content))


def _add_time(transcript: list[JSON], now: int, timezone: str) -> None:
    at = next((i for i in range(len(transcript) - 1, -1, -1) if transcript[i]["role"] == "user"), None)
    if at is None:
        return
    when = datetime.fromtimestamp(now / 1000, UTC).astimezone(ZoneInfo(timezone))
    block = f"[{when:%A, %Y-%m-%d %H:%M} {timezone}]\n\n"
    content = transcript[at]["content"]
    if isinstance(content, str):
        transcript[at] = {**transcript[at], "content": block + content}
    else:
        transcript[at] = {**transcript[at], "content": [{"type": "text", "text": block}, *content]}


def _session(run_id: str, now: int) -> Session:
    """A session that no store has ever seen."""
    return Session(
        id="",
        session_key=f"agent:main:api:none:{run_id}",
        source=Source.API,
        user_id=None,
        agent="main",
        model=None,
        model_config=None,
        system_prompt=None,
        title=None,
        started_at=now,
        ended_at=None,
        end_reason=None,
        last_user_at=None,
        parent_session_id=None,
        message_count=0,
        tool_call_count=0,
        input_tokens=0,
        output_tokens=0,
        ns="",
    )


def _run(run_id: str, now: int) -> Run:
    return Run(
        id=run_id,
        session_id="",
        session_key="",
        kind=RunKind.CALL,
        status=RunStatus.RUNNING,
        stop_reason=None,
        error=None,
        fence=0,
        attempts=0,
        steps=0,
        input_tokens=0,
        output_tokens=0,
        worked_ms=0,
        route=None,
        options={},
        deployment=None,
        thread_id=None,
        created_at=now,
        updated_at=now,
        lease_owner=None,
        lease_until=None,
        wake_at=None,
        preview=None,
        noted=(),
    )
