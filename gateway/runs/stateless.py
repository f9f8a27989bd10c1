"""Answers calls without a session: the caller keeps the transcript, the gateway keeps nothing, and offers no tools of its own."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.agent.models.interface import (
    AFRESH,
    JSON,
    Answer,
    ContextOverflow,
    InputTooLong,
    ModelRequest,
    Shown,
    Usage,
)
from gateway.agent.profile import agent_named
from gateway.agent.system_prompt import gateway_blocks
from gateway.agent.transcript import well_formed, with_time
from gateway.agent.window import window_of
from gateway.context import App
from gateway.runs.live import LiveEvent
from gateway.runs.run import CUT_OFF
from gateway.texts import say
from sessions import ids, spending
from sessions.records import CallOptions, Source
from sessions.runs import GONE_ON


async def answer_once(
    app: App, messages: Sequence[JSON], options: CallOptions, on_event: Callable[[LiveEvent], None], who: str = ""
) -> Answer:
    """Returns the model's answer with the usage of all calls that it took. `on_event` is called with the text as it is written. `who`: whose
    usage it counts as. Raises ModelError.

    The model is asked again only where its answer could be given to nobody: it was cut off within a call, or calls a tool that nobody
    has offered.
    """
    call_id, began, model = ids.new_id("run"), time.monotonic(), options.model
    profile = agent_named(app, "main")
    system = "\n\n".join(
        [profile.system_prompt.strip(), *gateway_blocks(Source.API, "", person="", tools=()), *options.layered]
    )
    transcript: list[JSON] = [
        {"role": "system", "content": system},
        *with_time(well_formed(messages, GONE_ON), app.clock(), app.timezone),
    ]

    def on_token(shown: Shown) -> None:
        on_event(LiveEvent(call_id, "afresh") if shown is AFRESH else LiveEvent(call_id, "token", shown))

    used, steps = Usage(), 0
    while True:
        limits, day = app.config.limits, app.today()
        today = await app.database.read(spending.of_day, day) if limits.counts_days else (0, 0)
        tokens, seconds = used.input_tokens + used.output_tokens, time.monotonic() - began
        if (limit := limits.reached(steps=steps, tokens=tokens, seconds=seconds, today=today)) is not None:
            return Answer(text=say("budget.run", limit=limit), finish_reason="length", usage=used)
        await app.model.learn_window(model)  # before anything is measured against it
        window = window_of(app, model)
        size = app.tokens.messages(transcript, model or "") + app.tokens.tools(options.tools, model or "")
        if size > window.whole:
            raise InputTooLong.of(size, window.size, model)
        request = ModelRequest(
            messages=transcript,
            tools=list(options.tools),
            model=model,
            max_output_tokens=window.answer_beside(size, options.max_output_tokens),
            response_format=options.response_format,
            callers_tools=options.tool_names,
            sampling=options.sampling,
            exact=True,
        )
        try:
            answer = await app.side_work.answer(app.model, request, on_token)
        except ContextOverflow as error:  # the transcript is the caller's: it is not ours to shorten
            raise error.for_good() from error
        on_event(LiveEvent(call_id, "said"))
        steps, now = steps + 1, answer.usage
        used = Usage(
            input_tokens=used.input_tokens + now.input_tokens,
            output_tokens=used.output_tokens + now.output_tokens,
            cached_tokens=used.cached_tokens + now.cached_tokens,
        )
        counted = {"input_tokens": now.input_tokens, "output_tokens": now.output_tokens}
        await app.database.write(spending.add, app.today(), who, **counted)
        is_cut_off = answer.finish_reason == "length"
        callers = () if is_cut_off else tuple(call for call in answer.tool_calls if call.name in options.tool_names)
        if callers:
            return replace(answer, tool_calls=callers, finish_reason="tool_calls", usage=used)
        if not answer.tool_calls:
            return replace(answer, usage=used)
        calls = [call.as_sent() for call in answer.tool_calls]
        transcript.append({"role": "assistant", "content": answer.text or None, "tool_calls": calls})
        for call in answer.tool_calls:
            result = CUT_OFF if is_cut_off else f"[there is no tool {call.name} here]"
            transcript.append({"role": "tool", "tool_call_id": call.id, "content": result})
