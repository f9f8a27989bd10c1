"""Answers calls without a session: the caller keeps the transcript, the gateway keeps nothing."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gateway.agent.loop import Result, Situation
from gateway.agent.models.interface import (
    AFRESH,
    JSON,
    Answer,
    ContextOverflow,
    InputTooLong,
    ModelRequest,
    Usage,
)
from gateway.agent.profile import profile_of
from gateway.agent.system_prompt import gateway_blocks
from gateway.agent.tools.registry import ToolContext
from gateway.agent.transcript import well_formed, with_time
from gateway.agent.window import window_of
from gateway.context import App
from gateway.runs.live import LiveEvent
from gateway.texts import say
from sessions import ids, spending
from sessions.records import CallOptions, Message, MessageState, Role, Run, RunKind, RunStatus, Session, Source
from sessions.runs import GONE_ON

WITHOUT_NAMESPACE = frozenset[str]()
"""Tools that read and write nothing of a namespace: such a call has none."""
_CUT_OFF = "[not executed: the answer was cut off by the output limit; write less, or in several steps]"


class StatelessSteps:
    """Implements `gateway.agent.loop.Steps` in memory. `on_event` is called with the text as it is written."""

    def __init__(
        self, app: App, messages: Sequence[JSON], options: CallOptions, on_event: Callable[[LiveEvent], None]
    ) -> None:
        self.app = app
        self._options = options
        self._on_event = on_event
        self._id = ids.new_id("run")
        now = app.clock()
        self._session = _session(self._id, now)
        profile = profile_of(app, _run(self._id, now), self._session)
        self._toolbox = profile.toolbox.only(WITHOUT_NAMESPACE).beside(options)
        system = "\n\n".join(
            [
                profile.system_prompt.strip(),
                "\n\n".join(gateway_blocks(self._session, "", frozenset(self._toolbox.tools))),
                *options.layered,
            ]
        )
        self._model = options.model or profile.model
        turns = with_time(well_formed(messages, GONE_ON), now, app.timezone)
        self._transcript: list[JSON] = [{"role": "system", "content": system}, *turns]
        self._calls: list[Message] = []
        self._steps = 0
        self._used = Usage()
        self._began = time.monotonic()
        self._said = Answer(text="")  # the newest answer that calls tools
        self._given: Answer | None = None

    @property
    def given(self) -> Answer:
        """The answer, with the usage of all its steps."""
        if self._given is None:
            raise RuntimeError("the work is not done")
        return replace(self._given, usage=self._used)

    # --- looking ---

    async def situation(self) -> Situation:
        return Situation(calls=tuple(self._calls), limit=await self._limit_reached())

    async def _limit_reached(self) -> str | None:
        limits, used = self.app.config.limits, self._used
        database, day = self.app.database, self.app.today()
        today = await database.read(spending.of_day, day) if limits.counts_days else (0, 0)
        tokens = used.input_tokens + used.output_tokens
        seconds = time.monotonic() - self._began
        return limits.reached(steps=self._steps, tokens=tokens, seconds=seconds, today=today)

    async def take_in_new_messages(self) -> None:
        """Nothing ever comes in."""

    # --- the model ---

    async def ask_model(self) -> Answer:
        try:
            answer = await self.app.model.ask(await self._request(), self._on_token)
        except ContextOverflow as error:  # the transcript is the caller's: it is not ours to shorten
            raise error.for_good() from error
        self._on_event(LiveEvent(self._id, "said"))
        await self._count(answer.usage)
        return answer

    async def _request(self) -> ModelRequest:
        """Returns the request: all that the caller sent, and the gateway's tools if there is room for them. Raises InputTooLong."""
        options, tokens = self._options, self.app.tokens
        await self.app.model.learn_window(self._model)
        window = window_of(self.app, self._model)
        model, ours = self._model or "", self._toolbox.schemas
        size = tokens.messages(self._transcript, model) + tokens.tools(options.tools, model)
        if size > window.whole:
            raise InputTooLong.of(size, window.size, self._model)
        if (with_ours := size + tokens.tools(ours, model)) <= window.room:
            size, tools = with_ours, [*ours, *options.tools]
        else:
            tools = list(options.tools)
        return ModelRequest(
            messages=self._transcript,
            tools=tools,
            model=self._model,
            max_output_tokens=window.answer_beside(size, options.max_output_tokens),
            response_format=options.response_format,
            callers_tools=options.tool_names,
            sampling=options.sampling,
            exact=True,
        )

    def _on_token(self, text: str) -> None:
        self._on_event(LiveEvent(self._id, "afresh" if text == AFRESH else "token", text))

    async def _count(self, usage: Usage) -> None:
        self._steps += 1
        self._used = Usage(
            input_tokens=self._used.input_tokens + usage.input_tokens,
            output_tokens=self._used.output_tokens + usage.output_tokens,
            cached_tokens=self._used.cached_tokens + usage.cached_tokens,
        )
        day = self.app.today()
        await self.app.database.write(spending.add, day, usage.input_tokens, usage.output_tokens)

    async def commit_answer(self, answer: Answer) -> None:
        calls = [call.as_sent() for call in answer.tool_calls]
        self._said = answer
        self._transcript.append({"role": "assistant", "content": answer.text or None, "tool_calls": calls})
        now = self.app.clock()
        self._calls = [_row(number, call, now) for number, call in enumerate(calls)]
        if answer.finish_reason == "length":
            for call in tuple(self._calls):
                await self.done(call, Result(content=_CUT_OFF))

    async def finish(self, answer: Answer) -> bool:
        self._given = answer
        return True

    async def end_over_budget(self, limit: str) -> None:
        self._given = Answer(text=say("budget.run", limit=limit), finish_reason="length")

    async def hand_over_calls(self) -> None:
        left = {call.tool_call_id for call in self._calls}
        calls = tuple(call for call in self._said.tool_calls if call.id in left)
        self._given = replace(self._said, tool_calls=calls, finish_reason="tool_calls")

    # --- the tools ---

    def is_callers(self, call: Message) -> bool:
        return call.tool_name in self._options.tool_names

    def may_run_beside_others(self, call: Message) -> bool:
        tool = self._toolbox.tools.get(call.tool_name or "")
        return tool is not None and tool.reads_only

    def may_repeat(self, call: Message) -> bool:
        return call.state is not MessageState.STARTED

    async def run_tool(self, call: Message) -> Result:
        tool = self._toolbox.tools.get(call.tool_name or "")
        if tool is None:
            return Result(content=f"[there is no tool {call.tool_name} here]")
        self._on_event(LiveEvent(self._id, "tool", tool.name))
        outcome = await tool.run(self._tool_context(), call.content or "{}")
        self._on_event(LiveEvent(self._id, "tool_done", tool.name))
        return Result(content=outcome if isinstance(outcome, str) else "[nobody can be asked here]")

    async def done(self, call: Message, result: Result) -> None:
        self._transcript.append({"role": "tool", "tool_call_id": call.tool_call_id, "content": result.content})
        self._calls = [other for other in self._calls if other.id != call.id]

    def _tool_context(self) -> ToolContext:
        return ToolContext(
            session=self._session,
            database=self.app.database,
            workspace=Path("/nonexistent"),  # its tools need none, see WITHOUT_NAMESPACE
            skills=Path("/nonexistent"),
            outgoing=Path("/nonexistent"),
            clock=self.app.clock,
            idem_key=self._id,
            run_id=self._id,
        )

    @property
    def is_parked(self) -> bool:
        return False

    @property
    def draining(self) -> bool:
        return False


def _row(number: int, call: JSON, now: int) -> Message:
    """Returns the row of a call that is still to be done; its content is the arguments until there is a result."""
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
        attachments=(),
        state=MessageState.PENDING,
        idem_key=None,
    )


def _session(run_id: str, now: int) -> Session:
    """Returns a session that no store has ever seen."""
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
        options=CallOptions(),
        error_code=None,
        withheld=False,
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
