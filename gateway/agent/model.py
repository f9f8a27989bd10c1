"""Models behind an OpenAI-compatible endpoint: retries, fallbacks, and the differences between endpoints.

The client library is imported with the first call, because that takes a second and most commands never call a model. Answers are
read as plain dictionaries: its typed objects would cost most of a call's time and hide fields that have to go back.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from gateway.agent.answers import Assembly
from gateway.agent.asking import (
    AFRESH,
    JSON,
    Answer,
    ContextOverflow,
    ModelError,
    ModelRefused,
    ModelRequest,
    ModelUnreachable,
    OnToken,
    Usage,
)
from gateway.agent.fences import Fences, unfenced_json
from gateway.agent.patience import Patience
from gateway.agent.quirks import Gap, Quirks
from gateway.agent.refusals import Verdict, named_limit, without_secrets
from gateway.agent.sight import is_refused, once_without
from gateway.agent.tokens import Tokens
from gateway.agent.trouble import Outcome, Trouble, code_in, of_all, refusal

if TYPE_CHECKING:
    import openai

CONNECT_SECONDS = 15.0
REST_SECONDS = 60.0  # a model that failed for good is asked after its fallbacks for so long
LEAST_WINDOW = 1_024

Observe = Callable[[str, Outcome, float, Usage | None], None]
"""Hears of every call: the model, how it ended, seconds, and usage when it was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """`timeout_seconds`: the longest silence of an endpoint, and the time after which nothing is retried."""

    base_url: str
    name: str
    api_key: str = field(default="", repr=False)
    fast: str = ""
    fallbacks: tuple[str, ...] = ()
    context_window: int = 128_000
    max_output_tokens: int = 4096
    timeout_seconds: float = 300.0
    transcription: str = "whisper-1"

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]


def _ignore(_model: str, _outcome: Outcome, _seconds: float, _usage: Usage | None) -> None:
    """Nobody observes."""


class _Endpoint:
    """The client library's one client, made with the first call, and its errors in our words."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._client: openai.AsyncOpenAI | None = None

    async def client(self) -> "openai.AsyncOpenAI":
        if self._client is None:
            await asyncio.to_thread(_import_library)  # the loop goes on meanwhile
        if self._client is None:
            self._client = _new_client(self._settings)
        return self._client

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    @asynccontextmanager
    async def speaking(self, model: str) -> AsyncGenerator[asyncio.Timeout]:
        """Turns whatever goes wrong inside into Trouble. The timeout given is to be moved whenever something arrives."""
        import openai

        try:
            async with asyncio.timeout(self._settings.timeout_seconds) as limit:
                yield limit
        except TimeoutError as error:
            raise self._silent() from error
        except openai.APIStatusError as error:
            raise self._refusal(model, error.status_code, error.body, error.response.headers) from error
        except openai.APIConnectionError as error:
            raise self._no_connection(error) from error
        except openai.APIError as error:  # an error in the middle of a stream
            raise self.told(model, error.body) from error
        except UnicodeEncodeError as error:
            message = "The conversation holds characters that cannot be sent as UTF-8."
            raise Trouble(message, Verdict.TRANSCRIPT) from error
        except ValueError as error:
            raise self.not_an_answer() from error

    def told(self, model: str, body: object) -> Trouble:
        """An error inside an answer whose status was 200."""
        return self._refusal(model, code_in(body) or 503, body, {})

    def not_an_answer(self) -> Trouble:
        message = f"{self._settings.host} did not answer in the way of Chat Completions. Check model.base_url."
        return Trouble(message, Verdict.AGAIN)

    def _silent(self) -> Trouble:
        seconds = self._settings.timeout_seconds
        return Trouble(f"{self._settings.host} was silent for {seconds:g} s.", Verdict.AGAIN)

    def _no_connection(self, error: BaseException) -> Trouble:
        """The transport calls a refused connection a timeout too; only the first cause tells."""
        while error.__cause__ is not None:
            error = error.__cause__
        if isinstance(error, TimeoutError):
            return self._silent()
        why = " ".join(without_secrets(_reason(error), self._settings.api_key).split()) or type(error).__name__
        return Trouble(f"{self._settings.host} cannot be reached: {why}", Verdict.AGAIN)

    def _refusal(self, model: str, status: int, body: object, headers: Mapping[str, str]) -> Trouble:
        return refusal(self._settings.host, model, self._settings.api_key, status, body, headers)


def _reason(error: BaseException) -> str:
    """In words: `connection refused` for `[Errno 111] Connect call failed ('127.0.0.1', 9)`."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return re.sub(r"\[Errno -?\d+\] ", "", str(error))


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


class OpenAIModel:
    """`Model` over Chat Completions. Close it with `aclose()`; it may be used again after that."""

    def __init__(
        self,
        settings: ModelSettings,
        *,
        tokens: Tokens | None = None,
        patience: Patience | None = None,
        observe: Observe = _ignore,
    ) -> None:
        self.settings = settings
        self.tokens = tokens or Tokens()
        self._patience = patience or Patience()
        self._observe = observe
        self._endpoint = _Endpoint(settings)
        self._quirks: dict[str, Quirks] = {}
        self._resting: dict[str, float] = {}

    def describe(self) -> str:
        return f"{self.settings.name} at {self.settings.host}"

    def window(self, model: str | None = None) -> int:
        """The context window in tokens: as configured, or smaller once the endpoint has refused a request for its length."""
        learnt = self._quirks_of(model or self.settings.name).window
        return min(self.settings.context_window, learnt or self.settings.context_window)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def ask(self, request: ModelRequest, on_token: OnToken | None = None) -> Answer:
        """See `Model`. When an answer has to begin again after something was shown, `on_token` hears AFRESH."""
        shown = _Shown(on_token)
        failures: list[ModelError] = []
        for model in self._candidates(request.model):
            try:
                return await self._ask(model, request, shown)
            except ContextOverflow:
                raise
            except ModelRefused as error:
                if error.about_transcript:
                    raise
                failures.append(error)
            except ModelUnreachable as error:
                failures.append(error)
            self._resting[model] = self._patience.clock() + REST_SECONDS
            shown.start_afresh()
        raise of_all(failures)

    def _candidates(self, wanted: str | None) -> list[str]:
        settings = self.settings
        first = wanted or settings.name
        spare = [settings.name] if first == settings.fast else []
        names = dict.fromkeys([first, *spare, *settings.fallbacks])
        now = self._patience.clock()
        return sorted(names, key=lambda name: self._resting.get(name, now) > now)

    async def _ask(self, model: str, request: ModelRequest, shown: _Shown) -> Answer:
        """One model with its retries. Ends, because every refusal that is adapted to closes a gap for good."""
        quirks, failed = self._quirks_of(model), 0
        deadline = self._patience.clock() + self.settings.timeout_seconds
        while True:
            body = quirks.shape(request, model, self.settings.max_output_tokens)
            started = self._patience.clock()
            try:
                answer = await self._call(body, request, shown)
            except Trouble as trouble:
                adapted = quirks.learn(body, trouble.status, trouble.words)
                if not adapted and trouble.verdict is Verdict.TRANSCRIPT and is_refused(body, trouble.words):
                    request, adapted = once_without(request), True
                outcome = Outcome.ADAPTED if adapted else trouble.outcome
                self._observe(model, outcome, self._patience.clock() - started, None)
                if not adapted:
                    failed += 1
                    await self._wait_or_give_up(trouble, failed, deadline, body)
                shown.start_afresh()
            else:
                self._resting.pop(model, None)
                self._observe(model, Outcome.ANSWERED, self._patience.clock() - started, answer.usage)
                return answer

    async def _wait_or_give_up(self, trouble: Trouble, failed: int, deadline: float, body: JSON) -> None:
        if trouble.verdict is Verdict.OVERFLOW:
            self._learn_window(body, named_limit(trouble.words))
        wait = self._patience.wait(failed, trouble.wait, deadline) if trouble.verdict is Verdict.AGAIN else None
        if wait is None:
            raise trouble.final() from trouble
        await self._patience.sleep(wait)

    async def _call(self, body: JSON, request: ModelRequest, shown: _Shown) -> Answer:
        model: str = body["model"]
        real_tools = Gap.TOOLS not in self._quirks_of(model).gaps
        fences = Fences({tool["function"]["name"] for tool in request.tools}, anywhere=not real_tools)
        assembly = Assembly()
        async with aclosing(self._chunks(body)) as chunks:
            async for chunk in chunks:
                text = self._read(assembly, chunk)
                if assembly.visible.restarted:
                    fences.restart()
                    shown.start_afresh()
                shown.show(fences.feed(text))
        if not assembly.started:
            raise self._endpoint.not_an_answer()
        if not assembly.complete or assembly.finish_reason == "error":
            raise Trouble(f"{self.settings.host} broke off its answer.", Verdict.AGAIN)
        shown.show(fences.feed(assembly.visible.finish()) + fences.finish())
        return self._answer(body, request, assembly, fences)

    def _read(self, assembly: Assembly, chunk: JSON) -> str:
        try:
            return assembly.feed(chunk)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # not the shape of a chunk
            raise self._endpoint.not_an_answer() from error

    async def _chunks(self, body: JSON) -> AsyncGenerator[JSON]:
        """The answer's chunks, or the whole of it as the only one."""
        client = await self._endpoint.client()
        async with self._endpoint.speaking(body["model"]) as limit:
            if not body.get("stream"):
                yield self._checked(body, await client.post("/chat/completions", cast_to=object, body=body))
                return
            async with await self._stream(client, body) as stream:
                if "json" in stream.response.headers.get("content-type", ""):
                    await stream.response.aread()
                    yield self._checked(body, stream.response.json())
                    return
                async for chunk in stream:
                    self._heard(limit)
                    yield self._checked(body, chunk)

    def _heard(self, limit: asyncio.Timeout) -> None:
        """Moves the end of patience, at every tenth of it only: timers cost more than reading a chunk."""
        now, seconds = asyncio.get_running_loop().time(), self.settings.timeout_seconds
        if (limit.when() or now) < now + 0.9 * seconds:
            limit.reschedule(now + seconds)

    async def _stream(self, client: "openai.AsyncOpenAI", body: JSON) -> "openai.AsyncStream[object]":
        from openai import AsyncStream

        return await client.post(
            "/chat/completions", cast_to=object, body=body, stream=True, stream_cls=AsyncStream[object]
        )

    def _checked(self, body: JSON, found: object) -> JSON:
        if not isinstance(found, dict):
            raise self._endpoint.not_an_answer()
        chunk = cast(JSON, found)
        if chunk.get("error"):
            raise self._endpoint.told(body["model"], chunk["error"])
        return chunk

    def _answer(self, body: JSON, request: ModelRequest, assembly: Assembly, fences: Fences) -> Answer:
        tool_calls = assembly.tool_calls(fences.calls)
        text = fences.text.rstrip() if fences.calls else fences.text
        text = unfenced_json(text) if request.response_format else text
        reason = assembly.finish_reason or "stop"
        if reason in ("stop", "tool_calls", "function_call"):
            reason = "tool_calls" if tool_calls else "stop"
        answer = Answer(text=text, tool_calls=tool_calls, finish_reason=reason, model=body["model"])
        return replace(answer, usage=self._usage(body, answer, assembly.usage))

    def _usage(self, body: JSON, answer: Answer, counted: Usage | None) -> Usage:
        model: str = body["model"]
        if counted is not None:
            self.tokens.learn(model, self._estimate(body), counted.input_tokens)
            return counted
        written = self.tokens.text(answer.text, model)
        written += sum(self.tokens.text(call.name + call.arguments, model) for call in answer.tool_calls)
        return Usage(input_tokens=self._estimate(body, model), output_tokens=written, estimated=True)

    def _estimate(self, body: JSON, model: str = "") -> int:
        return self.tokens.messages(body["messages"], model) + self.tokens.tools(body.get("tools") or (), model)

    def _learn_window(self, body: JSON, limit: int | None) -> None:
        """Where the service does not name its window, it is smaller than what it just refused."""
        model: str = body["model"]
        learnt = limit or self._estimate(body, model)
        self._quirks_of(model).window = max(min(learnt, self.window(model)), LEAST_WINDOW)

    def _quirks_of(self, model: str) -> Quirks:
        return self._quirks.setdefault(model, Quirks())


class Transcriber:
    """Speech to text over `/audio/transcriptions` of the same endpoint."""

    def __init__(
        self, settings: ModelSettings, *, patience: Patience | None = None, observe: Observe = _ignore
    ) -> None:
        self.settings = settings
        self._patience = patience or Patience(attempts=3)
        self._observe = observe
        self._endpoint = _Endpoint(settings)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def transcribe(self, audio: bytes, name: str, *, language: str | None = None) -> str:
        """The spoken words. `name` tells the format by its ending. Raises ModelUnreachable or ModelRefused."""
        deadline, failed = self._patience.clock() + self.settings.timeout_seconds, 0
        while True:
            started = self._patience.clock()
            try:
                text = await self._call(audio, name, language)
            except Trouble as trouble:
                failed += 1
                self._observe(self.settings.transcription, trouble.outcome, self._patience.clock() - started, None)
                wait = self._patience.wait(failed, trouble.wait, deadline) if trouble.verdict is Verdict.AGAIN else None
                if wait is None:
                    raise trouble.about_audio() from trouble
                await self._patience.sleep(wait)
            else:
                self._observe(self.settings.transcription, Outcome.ANSWERED, self._patience.clock() - started, None)
                return text

    async def _call(self, audio: bytes, name: str, language: str | None) -> str:
        client, model = await self._endpoint.client(), self.settings.transcription
        async with self._endpoint.speaking(model):
            spoken = {"language": language} if language else {}
            files = {"file": (name, audio)}
            answer = await client.post(
                "/audio/transcriptions",
                cast_to=object,
                body={"model": model, **spoken},
                files=files,
                options={"headers": {"Content-Type": "multipart/form-data"}},
            )
        text = cast(JSON, answer).get("text") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            raise self._endpoint.not_an_answer()
        return text.strip()


def _import_library() -> None:
    import_module("openai")


def _new_client(settings: ModelSettings) -> "openai.AsyncOpenAI":
    import openai

    return openai.AsyncOpenAI(
        base_url=settings.base_url,
        api_key=settings.api_key or "none",  # local servers want none, the library insists on one
        max_retries=0,
        timeout=openai.Timeout(settings.timeout_seconds, connect=min(CONNECT_SECONDS, settings.timeout_seconds)),
        http_client=openai.DefaultAioHttpClient(),  # a third less CPU for each call than the default transport
    )
