"""Models behind an OpenAI-compatible endpoint: retries, fallbacks, and the differences between endpoints.

Answers are read as plain dictionaries: the client library's typed objects would cost most of a call's time and hide fields that have
to go back.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import cast

from gateway.agent.models.endpoint import ModelEndpoint, ModelSettings
from gateway.agent.models.errors import CallFailed, CallOutcome, combined_error
from gateway.agent.models.interface import (
    AFRESH,
    JSON,
    Answer,
    ModelError,
    ModelRefused,
    ModelRequest,
    ModelUnreachable,
    OnToken,
    Usage,
    encoded_body,
)
from gateway.agent.models.quirks import Gap, Quirks, RefusalKind, named_limit
from gateway.agent.models.retry import Retries, RetryPolicy, SlowStart
from gateway.agent.models.stream_reader import AnswerBuilder, written_calls
from gateway.agent.models.text_tool_calls import TextToolCallFilter, in_words, unfenced_json
from gateway.agent.models.vision import has_new_pictures, is_refused, pictures_refused, without_refused_pictures
from gateway.agent.tokens import Tokens
from gateway.observe.logging import get_logger
from gateway.texts import say

log = get_logger(__name__)

PATH = "/chat/completions"
REST_SECONDS = 60.0  # a model that failed for good is asked after its fallbacks for so long
LEAST_WINDOW = 1_024

Observe = Callable[[str, CallOutcome, float, Usage | None], None]
"""Hears of every call: the model, how it ended, seconds, and usage when it was answered."""


def ignore(_model: str, _outcome: CallOutcome, _seconds: float, _usage: Usage | None) -> None:
    """Observes nothing."""


class _Shown:
    """What the reader has seen of an answer that may have to begin again."""

    def __init__(self, on_token: OnToken | None) -> None:
        self._on_token = on_token
        self._any = False

    def show(self, text: str) -> None:
        if text and self._on_token:
            self._any = True
            self._on_token(text)

    def start_afresh(self) -> None:
        if self._any and self._on_token:
            self._any = False
            self._on_token(AFRESH)


@dataclass(slots=True, kw_only=True)
class _KnownModel:
    """What was found out about one model of the endpoint. `named_window`: 0 where the endpoint names none, None before it was asked.
    `rests_until`: others are asked first until then. That nobody answers, fallbacks included, is an outage: `gateway/runs/outages.py`."""

    start: SlowStart
    quirks: Quirks = field(default_factory=Quirks)
    named_window: int | None = None
    rests_until: float = 0.0


class OpenAIModel:
    """`Model` over Chat Completions. Close it with `aclose()`; it may be used again after that."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        tokens: Tokens | None = None,
        retry_policy: RetryPolicy | None = None,
        observe: Observe = ignore,
    ) -> None:
        self.settings = settings
        self.tokens = tokens or Tokens()
        self._retry_policy = retry_policy or RetryPolicy()
        self._observe = observe
        self._endpoint = ModelEndpoint(settings)
        self._models = defaultdict[str, _KnownModel](
            lambda: _KnownModel(start=SlowStart(self._retry_policy.clock, settings.host))
        )

    def _known(self, model: str | None) -> _KnownModel:
        return self._models[model or self.settings.name]

    def describe(self) -> str:
        return f"{self.settings.name} at {self.settings.host}"

    @property
    def is_near(self) -> bool:
        return self.settings.is_near

    def window(self, model: str | None = None) -> int:
        """The context window in tokens: as configured or as the endpoint names it, whichever is smaller, and smaller still once it has
        refused a request for its length. Where none is configured, what the endpoint names counts."""
        known = self._known(model)
        named, learnt = known.named_window, known.quirks.window
        configured = self.settings.context_window
        size = min(configured, named or configured) if self.settings.window_is_known else named or configured
        return min(size, learnt or sys.maxsize)

    def left_out(self, fields: Collection[str], model: str | None = None) -> Collection[str]:
        return self._known(model).quirks.dropped.intersection(fields)

    async def learn_window(self, model: str | None = None) -> None:
        """Asks the endpoint, once for each model, how large its window is. Never raises for what the endpoint does."""
        known = self._known(model)
        # Others may ask at the same time: a call that fails must not undo what theirs has found.
        if known.named_window is None:
            named = await self._endpoint.reported_window(model or self.settings.name)
            known.named_window = known.named_window if named is None else named

    async def warm_up(self) -> None:
        """Loads the client library, which takes a tenth of a second, before somebody waits for it."""
        await self._endpoint.client()

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def ask(self, request: ModelRequest, on_token: OnToken | None = None) -> Answer:
        """See `Model`. When an answer has to begin again after something was shown, `on_token` hears AFRESH."""
        shown = _Shown(on_token)
        failures: list[ModelError] = []
        settings = self.settings
        first = request.model or settings.name
        spare = [settings.name] if first == settings.fast else []
        names = dict.fromkeys([first, *spare, *settings.fallbacks])
        now = self._retry_policy.clock()
        # The sort is stable, and models that rest come last instead of being left out: when all of them rest, the first is asked.
        candidates = sorted(names, key=lambda name: self._models[name].rests_until > now)
        for model in candidates:
            retries = Retries(self._retry_policy, self.settings.timeout_seconds, is_last=model == candidates[-1])
            try:
                return await self._ask_one(model, request, shown, retries)
            except ModelRefused as error:
                # A fallback would be sent the same messages, so the caller has to change them. For the same reason ContextOverflow passes.
                if error.about_transcript:
                    raise
                failures.append(error)
            except ModelUnreachable as error:
                failures.append(error)
            self._models[model].rests_until = self._retry_policy.clock() + REST_SECONDS
            shown.start_afresh()
        raise combined_error(failures)

    async def _ask_one(self, model: str, request: ModelRequest, shown: _Shown, retries: Retries) -> Answer:
        """Asks one model, with retries. Ends, because every refusal that is adapted to closes a gap for good, and for an answer in words it is
        asked only once more."""
        known, before = self._models[model], Usage()
        quirks = known.quirks
        asked_again = False
        while True:
            if request.exact and Gap.PICTURES in quirks.gaps and has_new_pictures(request.messages):
                raise pictures_refused(self.settings.host, model)
            body = quirks.shape(request, model, self.settings.max_output_tokens)
            started = self._retry_policy.clock()
            try:
                answer = await self._call(body, request, shown)
            except CallFailed as failure:
                if failure.kind is RefusalKind.AGAIN:
                    known.start.failed()
                # Learnt before anything is raised: the next request is then refused without a call.
                adapted = quirks.learn(body, failure.status, failure.error_text)
                if request.exact and is_refused(body, failure.error_text) and has_new_pictures(request.messages):
                    raise failure.as_model_error() from failure
                # Not a gap of the model: it refuses these pictures only, so later requests are sent with theirs.
                if not adapted and failure.kind is RefusalKind.TRANSCRIPT and is_refused(body, failure.error_text):
                    request, adapted = without_refused_pictures(request), True
                outcome = CallOutcome.ADAPTED if adapted else failure.outcome
                self._observe(model, outcome, self._retry_policy.clock() - started, None)
                if not adapted:
                    await self._wait_or_give_up(failure, retries, body)
                shown.start_afresh()
            else:
                known.rests_until = 0.0
                self._observe(model, CallOutcome.ANSWERED, self._retry_policy.clock() - started, answer.usage)
                if not answer.is_broken or asked_again:
                    return replace(answer, usage=answer.usage.and_before(before)) if asked_again else answer
                request, asked_again, before = in_words(request), True, answer.usage
                shown.start_afresh()

    async def _wait_or_give_up(self, failure: CallFailed, retries: Retries, body: JSON) -> None:
        if failure.kind is RefusalKind.OVERFLOW:
            # Lowers the window after a refusal: to the limit that it names, else to the size of what was refused.
            model: str = body["model"]
            learnt = named_limit(failure.error_text) or self._estimate(body, model)
            # Never larger than before, and never too small to work with: what an endpoint names may be another figure.
            self._models[model].quirks.window = max(min(learnt, self.window(model)), LEAST_WINDOW)
        may_pass = failure.kind is RefusalKind.AGAIN
        wait = retries.next_wait(failure.wait, silent=failure.silent) if may_pass else None
        if wait is None:
            raise failure.as_model_error() from failure
        log.warning("model.retried", model=body["model"], status=failure.status, retry_in=round(wait, 1))
        await self._retry_policy.sleep(wait)

    async def _call(self, body: JSON, request: ModelRequest, shown: _Shown) -> Answer:
        known = self._models[body["model"]]
        text_calls = self._text_call_filter(known.quirks, request)
        builder = AnswerBuilder(self.settings.answer_bytes)
        # `break` leaves a generator suspended; aclosing ends it at once, and with it the connection.
        async with known.start.place(), aclosing(self._chunks(body)) as chunks:
            async for chunk in chunks:
                known.start.answered()
                text = self._read(builder, chunk)
                if builder.visible.restarted:  # a closing tag has shown that the text before it was reasoning
                    text_calls.restart()
                    shown.start_afresh()
                shown.show(text_calls.feed(text))
                if builder.is_full:
                    break
        if builder.is_full:
            # What has come until the limit, with a line that says so. Calls in it are not executed, as after any answer that was cut off.
            log.warning("model.answer_cut", model=body["model"], limit=self.settings.answer_bytes)
            note = say("limits.answer_cut", limit=f"{self.settings.answer_bytes:,}")
            shown.show(text_calls.feed(builder.visible.finish() + f"\n\n{note}") + text_calls.finish(is_text=True))
            builder.finish_reason = "length"
            return self._answer(body, request, builder, text_calls)
        if not builder.started:
            raise self._endpoint.not_an_answer()
        # OpenRouter ends an answer that its provider broke off with the finish reason `error`.
        if not builder.complete or builder.finish_reason == "error":
            raise CallFailed(f"{self.settings.host} broke off its answer.", RefusalKind.AGAIN)
        shown.show(text_calls.feed(builder.visible.finish()) + text_calls.finish(is_text=builder.has_calls))
        known.quirks.calls_tools |= builder.has_whole_call
        return self._answer(body, request, builder, text_calls)

    def _text_call_filter(self, quirks: Quirks, request: ModelRequest) -> TextToolCallFilter:
        if quirks.calls_tools:
            return TextToolCallFilter({}, {})
        functions = {tool["function"]["name"]: tool["function"] for tool in request.tools}
        own = {name: function for name, function in functions.items() if name not in request.callers_tools}
        # An endpoint without tools was told to write such a block: it has no other way to call a caller's tool.
        return TextToolCallFilter(own, functions if Gap.TOOLS in quirks.gaps else own)

    def start_slowly(self, model: str | None = None) -> None:
        start = self._known(model).start
        # The failure may have been seen by another process or before a restart; here it is noted as if it had just ended.
        start.failed()
        start.answered()

    def _read(self, builder: AnswerBuilder, chunk: JSON) -> str:
        try:
            return builder.feed(chunk)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # not the shape of a chunk
            raise self._endpoint.not_an_answer() from error

    async def _chunks(self, body: JSON) -> AsyncGenerator[JSON]:
        """Yields the answer's chunks, or the whole of it as the only one."""
        await self._endpoint.client()
        from openai import AsyncStream

        async with self._endpoint.translating_errors(body["model"]) as limit:
            if not body.get("stream"):
                whole = await self._endpoint.post(PATH, content=encoded_body(body))
                yield self._checked(body, whole)
                return
            async with await self._endpoint.post(
                PATH, content=encoded_body(body), stream=True, stream_cls=AsyncStream[object]
            ) as stream:
                # Some endpoints ignore `stream` and send the whole answer; the library would find no event in it.
                if "json" in stream.response.headers.get("content-type", ""):
                    await stream.response.aread()
                    yield self._checked(body, stream.response.json())
                    return
                async for chunk in stream:
                    self._postpone(limit)
                    yield self._checked(body, chunk)

    def _postpone(self, limit: asyncio.Timeout) -> None:
        """Moves the timeout on, at every tenth of it only: timers cost more than reading a chunk."""
        now, seconds = asyncio.get_running_loop().time(), self.settings.timeout_seconds
        if (limit.when() or now) < now + 0.9 * seconds:
            limit.reschedule(now + seconds)

    def _checked(self, body: JSON, found: object) -> JSON:
        if not isinstance(found, dict):
            raise self._endpoint.not_an_answer()
        chunk = cast(JSON, found)
        if chunk.get("error"):
            raise self._endpoint.error_in_answer(body["model"], chunk["error"])
        return chunk

    def _answer(
        self, body: JSON, request: ModelRequest, builder: AnswerBuilder, text_calls: TextToolCallFilter
    ) -> Answer:
        made = builder.tool_calls()
        inside = [each for call in made for each in text_calls.within(call.arguments)]
        tool_calls = written_calls(inside) or made or written_calls(text_calls.calls)
        text = text_calls.text.rstrip() if text_calls.calls else text_calls.text
        text = unfenced_json(text) if request.response_format else text
        reason = builder.finish_reason or "stop"
        # Endpoints say `stop` beside calls too, so it is the calls that were found that decide.
        if reason in ("stop", "tool_calls", "function_call"):
            reason = "tool_calls" if tool_calls else "stop"
        answer = Answer(
            text=text, tool_calls=tool_calls, finish_reason=reason, model=body["model"], is_broken=text_calls.is_broken
        )
        return replace(answer, usage=self._usage(body, answer, builder.usage))

    def _usage(self, body: JSON, answer: Answer, counted: Usage | None) -> Usage:
        model: str = body["model"]
        if counted is not None:
            # Without the model's name: compared with a corrected estimate, the correction would undo itself.
            self.tokens.learn(model, self._estimate(body), counted.input_tokens)
            return counted
        written = self.tokens.text(answer.text, model)
        written += sum(self.tokens.text(call.name + call.arguments, model) for call in answer.tool_calls)
        return Usage(input_tokens=self._estimate(body, model), output_tokens=written, estimated=True)

    def _estimate(self, body: JSON, model: str = "") -> int:
        return self.tokens.messages(body["messages"], model) + self.tokens.tools(body.get("tools") or (), model)
