"""A Chat Completions server at the wire that answers by script, counts every call and keeps every request.

    async with ModelServer(["hello", calls(call("files", {"action": "list"}))]) as server:
        OpenAIModel(ModelSettings(base_url=server.url, ...))

As a process, for measurements: `python -m tests.fakes.model_server --port 0`.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Self

from aiohttp import web

from tests.fakes.model_replies import FROM_LENGTH, Failure, Pause, Reply, Step, bad_key, bad_request
from tests.fakes.model_rules import Speaks, refuse

JSON = dict[str, Any]
Script = Sequence[Step] | Callable[[JSON], Step]
OPUS = b"OggS" + b"\0" * 24 + b"OpusHead spoken"
SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


@dataclass(frozen=True, kw_only=True)
class Call:
    body: JSON
    headers: dict[str, str]

    @property
    def messages(self) -> list[JSON]:
        return self.body["messages"]


def is_fold(body: JSON) -> bool:
    """Whether the gateway asks for a fold: also where it was told before that schemas are not known, and spells it out."""
    return "You keep the memory of an assistant." in str(body.get("messages", ())[:1])


def reads_ahead(body: JSON) -> bool:
    """Whether the model only reads a part of a longer prompt that follows."""
    return 1 in (body.get("max_tokens"), body.get("max_completion_tokens"))


def asks_about_pair(body: JSON) -> bool:
    """Whether the gateway asks if an older note is still true beside a new one."""
    return "hermes_fold_replaces" in str(body.get("response_format"))


def nothing_to_note(_: JSON) -> str:
    """The answer of a model that finds nothing worth keeping."""
    return json.dumps({"observations": [], "digest": ""})


class ModelServer:
    """`script` is taken step by step, or asked with each request's body; after its end every answer is `then`.

    `about_models`: more fields of each row of /models. `ollama`: what /api/show answers.
    `folds` is asked for the answer to each fold of the memory, which is counted in `folded` and takes no step of the script; None: folds
    are requests like others. Requests that let it read a part of a fold are counted in `read_ahead` alone.
    `pairs` answers whether an older note is no longer true beside a new one, likewise; these requests are in `paired`.
    `speech` is what /audio/speech answers, and takes no step of the script; `spoken` are its requests.
    `closes`: after each streamed answer it closes the connection without having said so, as llama.cpp does.
    `keeps`: whether requests can be looked at later.
    `fast` answers everything with one prepared text, unchecked and unrecorded: as little work as a server can do.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        then: Step = "ok",
        speaks: Speaks | None = None,
        api_key: str | None = None,
        folds: Callable[[JSON], Step] | None = nothing_to_note,
        keeps: bool = True,
        fast: str | None = None,
        port: int = 0,
        closes: bool = False,
        about_models: JSON | None = None,
        ollama: JSON | None = None,
        prefixes: Sequence[str] = ("", "/v1"),
    ) -> None:
        self.script: Script = script if callable(script) else list(script)
        self.then = then
        self.speaks = speaks or Speaks()
        self.api_key = api_key
        self.count = 0
        self.folds = folds
        self.folded: list[JSON] = []
        self.read_ahead = 0
        self.pairs: Callable[[JSON], Step] = lambda _: '{"replaces": "no"}'
        self.paired: list[JSON] = []
        self._keeps = keeps
        self.calls: list[Call] = []
        self.refused: list[Failure] = []
        self.uploads: list[JSON] = []
        self.speech: bytes | Failure = OPUS
        self.spoken: list[JSON] = []
        self._fast = _prepared(fast) if fast is not None else None
        self._port = port
        self._closes = closes
        self._about_models = about_models or {}
        self._ollama = ollama
        self._prefixes = prefixes
        self.asked_about: list[str] = []
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        for prefix in self._prefixes:
            app.router.add_post(
                f"{prefix}/chat/completions", self._complete if self._fast is None else self._complete_fast
            )
            app.router.add_post(f"{prefix}/audio/transcriptions", self._transcribe)
            app.router.add_post(f"{prefix}/audio/speech", self._speak)
            app.router.add_get(f"{prefix}/models", self._models)
        app.router.add_post("/api/show", self._show)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def bodies(self) -> list[JSON]:
        return [each.body for each in self.calls]

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        sent = await request.read()
        # Only now: whoever waits for the count finds the call, and a fold is taken off before anybody looks.
        self.count += 1
        if failure := self._wrong_key(request):
            return await self._fail(request, failure)
        try:
            body = json.loads(sent)
        except ValueError:
            return await self._fail(request, bad_request("We could not parse the JSON body of your request."))
        if self.folds is not None and is_fold(body):
            self.count -= 1
            if reads_ahead(body):
                self.read_ahead += 1
                return await self._perform(request, body, "{")
            if self._keeps:
                self.folded.append(body)
            failure = refuse(body, self.speaks)
            return await (self._fail(request, failure) if failure else self._perform(request, body, self.folds(body)))
        if self.folds is not None and asks_about_pair(body):
            self.count -= 1
            self.paired.append(body)
            return await self._perform(request, body, self.pairs(body))
        if self._keeps:
            self.calls.append(Call(body=body, headers=dict(request.headers)))
        if failure := refuse(body, self.speaks):
            self.refused.append(failure)
            return await self._fail(request, failure)
        return await self._perform(request, body, self._next(body))

    async def _perform(self, request: web.Request, body: JSON, step: Step) -> web.StreamResponse:
        if isinstance(step, Failure):
            return await self._fail(request, step)
        reply = Reply(text=step) if isinstance(step, str) else step
        if body.get("stream"):
            return await self._stream(request, body, reply)
        await _wait(reply.before)
        return web.json_response(_completion(body, reply))

    async def _stream(self, request: web.Request, body: JSON, reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(headers=SSE)
        await response.prepare(request)
        for number, event in enumerate(_events(body, reply)):
            if number == reply.drop_after:
                _hang_up(request)
                return response
            await _wait(reply.between if number else reply.before)
            await response.write(_sse(event))
        await response.write(b"data: [DONE]\n\n")
        if self._closes:
            await response.write_eof()
            _hang_up(request)
        return response

    async def _fail(self, request: web.Request, failure: Failure) -> web.StreamResponse:
        if failure.hang:
            await self._stopping.wait()
        if failure.drop or failure.hang:
            _hang_up(request)
        return web.Response(
            status=failure.status,
            body=failure.payload(),
            headers={"Content-Type": failure.content_type, **failure.headers},
        )

    async def _complete_fast(self, request: web.Request) -> web.Response:
        self.count += 1
        raw = await request.read()
        streamed, whole = (_nothing_noted() if b"You keep the memory of an assistant." in raw else self._fast) or (
            b"",
            b"",
        )
        if b'"stream":true' in raw or b'"stream": true' in raw:
            return web.Response(body=streamed, headers=SSE)
        return web.Response(body=whole, content_type="application/json")

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        self.count += 1
        if failure := self._wrong_key(request):
            return await self._fail(request, failure)
        upload = form.get("file")
        if not isinstance(upload, web.FileField) or not form.get("model"):
            return await self._fail(request, bad_request("'file' and 'model' are required.", param="file"))
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        self.uploads.append({**fields, "name": upload.filename, "audio": upload.file.read()})
        step = self._next(fields)
        if isinstance(step, Failure):
            return await self._fail(request, step)
        return web.json_response({"text": step if isinstance(step, str) else step.text})

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        if failure := self._wrong_key(request):
            return await self._fail(request, failure)
        body = await request.json()
        if missing := {"model", "input", "voice"} - body.keys():
            return await self._fail(request, bad_request(f"{missing} is required."))
        if len(body["input"]) > 4096:
            return await self._fail(request, bad_request("string too long", param="input"))
        self.spoken.append(body)
        if isinstance(self.speech, Failure):
            return await self._fail(request, self.speech)
        return web.Response(body=self.speech, content_type="audio/ogg")

    async def _models(self, request: web.Request) -> web.StreamResponse:
        if failure := self._wrong_key(request):
            return await self._fail(request, failure)
        names = sorted(self.speaks.models or {"fake-model"})
        self.asked_about.append("models")
        rows = [
            {"id": name, "object": "model", "created": 0, "owned_by": "fake", **self._about_models} for name in names
        ]
        return web.json_response({"object": "list", "data": rows})

    async def _show(self, request: web.Request) -> web.StreamResponse:
        """Ollama's own."""
        self.asked_about.append("show")
        if self._ollama is None:
            return web.Response(status=404)
        return web.json_response(self._ollama)

    def _next(self, body: JSON) -> Step:
        if callable(self.script):
            return self.script(body)
        return self.script.pop(0) if self.script else self.then  # type: ignore[attr-defined]

    def _wrong_key(self, request: web.Request) -> Failure | None:
        if self.api_key is None or request.headers.get("Authorization") == f"Bearer {self.api_key}":
            return None
        return bad_key(request.headers.get("Authorization", "").removeprefix("Bearer "))


def _completion(body: JSON, reply: Reply) -> JSON:
    choice = {"index": 0, "message": reply.whole(), "finish_reason": reply.ends(), "logprobs": None}
    answer = {**_head(body), "object": "chat.completion", "choices": [choice]}
    usage = _usage(body, reply)
    return {**answer, "usage": usage} if usage else answer


def _events(body: JSON, reply: Reply) -> list[JSON | str]:
    head = {**_head(body), "object": "chat.completion.chunk"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in reply.streamed()]
    choices.append({"index": 0, "delta": {}, "finish_reason": reply.ends()})
    events: list[JSON | str] = [{**head, "choices": [choice]} for choice in choices]
    if reply.empty_choices:
        events.insert(0, {**head, "choices": []})
    usage = _usage(body, reply)
    if usage and (body.get("stream_options") or {}).get("include_usage"):
        events.append({**head, "choices": [], "usage": usage})
    return events


def _head(body: JSON) -> JSON:
    return {"id": "chatcmpl-fake", "created": 1_700_000_000, "model": body.get("model", "fake-model")}


def _usage(body: JSON, reply: Reply) -> JSON | None:
    if reply.usage is not FROM_LENGTH:
        return reply.usage
    asked = len(json.dumps([body.get("messages"), body.get("tools")])) // 4
    answered = len(json.dumps(reply.whole())) // 4
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


def _sse(event: JSON | str) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


def _prepared(text: str) -> tuple[bytes, bytes]:
    body = {"model": "fake-model", "messages": [], "stream_options": {"include_usage": True}}
    reply = Reply(text=text)
    streamed = b"".join(map(_sse, _events(body, reply))) + b"data: [DONE]\n\n"
    return streamed, json.dumps(_completion(body, reply)).encode()


@lru_cache
def _nothing_noted() -> tuple[bytes, bytes]:
    return _prepared(nothing_to_note({}))


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()


async def _wait(pause: Pause | None) -> None:
    if pause is not None:
        await pause()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A scripted model server for measurements.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--text", default="This is a prepared answer of a scripted model.")
    parser.add_argument("--first-token", type=float, default=0.0, help="seconds before the first token")
    parser.add_argument("--between", type=float, default=0.0, help="seconds between tokens")
    parser.add_argument("--check", action="store_true", help="check and keep every request; slower")
    return parser.parse_args()


async def _serve(options: argparse.Namespace) -> None:
    slow = bool(options.first_token or options.between)
    reply = Reply(
        text=options.text,
        before=partial(asyncio.sleep, options.first_token),
        between=partial(asyncio.sleep, options.between),
    )
    fast = None if slow or options.check else options.text
    async with ModelServer(then=reply if slow else options.text, fast=fast, port=options.port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_serve(_arguments()))
    except KeyboardInterrupt:
        sys.exit(0)
