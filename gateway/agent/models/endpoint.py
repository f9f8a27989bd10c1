"""One endpoint that speaks Chat Completions: the client library's client, and its errors in our words.

The client library is imported with the first call, because most commands never call a model.
"""

import asyncio
import contextlib
import http.client
import json
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from gateway.agent.models.deferred_import import import_deferring
from gateway.agent.models.errors import CallFailed, code_in, refusal
from gateway.agent.models.quirks import RefusalKind, without_keys
from gateway.observe.logging import get_logger

_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)", re.MULTILINE)
# Of vLLM, OpenRouter, Groq and LM Studio.
_NAMES = ("max_model_len", "context_length", "context_window", "max_context_length")


def from_models(answer: object, model: str) -> int | None:
    """Reads the window from `GET /v1/models`: of this model, or of the only one that there is."""
    rows = _list(_dict(answer).get("data"))
    named = [row for row in rows if row.get("id") == model]
    row = (named or (rows if len(rows) == 1 else [{}]))[0]
    served = _number(_dict(row.get("meta")).get("n_ctx"))  # llama.cpp; n_ctx_train there is what could be served
    found = [served, *(_number(row.get(name)) for name in _NAMES)]
    return next((size for size in found if size), None)


def from_ollama(answer: object) -> int | None:
    """Reads the window from Ollama's `POST /api/show`: `num_ctx` where the model sets it, else what the model was made for."""
    shown = _dict(answer)
    if found := _NUM_CTX.search(str(shown.get("parameters") or "")):
        return int(found.group(1)) or None
    sizes = [_number(size) for name, size in _dict(shown.get("model_info")).items() if name.endswith(".context_length")]
    return next((size for size in sizes if size), None)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _dict(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [_dict(row) for row in cast(list[object], value)] if isinstance(value, list) else []


if TYPE_CHECKING:
    import openai

    from gateway.config.model import Config
    from gateway.config.model_choice import ChosenModel

log = get_logger(__name__)

CONNECT_SECONDS = 15.0
ASK_WINDOW_SECONDS = 3.0


_NAMES_AT_HOME = (".localhost", ".local", ".lan", ".internal", ".home.arpa")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """`timeout_seconds`: the longest silence of an endpoint, and the time after which nothing is retried. `answer_bytes`: where a
    longer answer is cut.

    `context_window` counts as it is when `window_is_known`, else only until the endpoint names its own.
    """

    base_url: str
    name: str
    api_key: str = field(default="", repr=False)
    fast: str = ""
    fallbacks: tuple[str, ...] = ()
    context_window: int = 128_000
    window_is_known: bool = True
    max_output_tokens: int = 4096
    timeout_seconds: float = 300.0
    answer_bytes: int = 1_048_576
    transcription: str = "whisper-1"

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def is_near(self) -> bool:
        """Whether the address is of this machine or of a private network. A name is not looked up."""
        name = urlsplit(self.base_url).hostname or ""
        try:
            return not ip_address(name).is_global
        except ValueError:
            return "." not in name or name.endswith(_NAMES_AT_HOME)


def model_settings(config: "Config", chosen: "ChosenModel") -> ModelSettings:
    """Returns the settings of the model that answers."""
    section = config.model
    return ModelSettings(
        base_url=chosen.base_url,
        name=chosen.name,
        api_key=chosen.api_key,
        fast=section.fast,
        fallbacks=tuple(section.fallbacks),
        context_window=section.context_window,
        window_is_known="context_window" in section.model_fields_set,
        max_output_tokens=section.max_output_tokens,
        timeout_seconds=section.timeout_seconds,
        answer_bytes=config.limits.answer_bytes,
    )


class ModelEndpoint:
    """The client library's one client, made with the first call, and its errors in our words."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._client: openai.AsyncOpenAI | None = None
        self._was_answered = False  # the last call of a near endpoint, whose connection may be used again

    async def client(self) -> "openai.AsyncOpenAI":
        if self._client is None:
            await asyncio.to_thread(_import_library)  # the loop goes on meanwhile
        if self._client is None:  # another call may have made it meanwhile
            self._client = _new_client(self._settings)
        return self._client

    async def post(self, path: str, **options: Any) -> Any:
        """Posts as the client does, and once more at once when the server had closed the connection after the last call, as llama.cpp does. That is
        certain when nothing could be written, and assumed of a near endpoint that has answered the last call and drops this one."""
        client = await self.client()
        import openai
        from aiohttp import ServerDisconnectedError

        was_answered, self._was_answered = self._was_answered, False
        try:
            found = await client.post(path, cast_to=object, **options)
        except openai.APIConnectionError as error:
            first = _first_cause(error)
            is_unread = isinstance(first, ConnectionResetError) and first.errno is None
            if not is_unread and not (was_answered and isinstance(first, ServerDisconnectedError)):
                raise
            found = await client.post(path, cast_to=object, **options)
        self._was_answered = self._settings.is_near
        return found

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    @asynccontextmanager
    async def translating_errors(self, model: str) -> AsyncGenerator[asyncio.Timeout]:
        """Turns whatever goes wrong inside into CallFailed. Gives the timeout, which the caller moves whenever something arrives."""
        import openai

        from gateway.agent.models.answer_limits import AnswerRefused

        try:
            async with asyncio.timeout(self._settings.timeout_seconds) as limit:
                yield limit
        except TimeoutError as error:
            raise self._silent() from error
        except openai.APIStatusError as error:
            raise self._refusal(model, error.status_code, error.body, error.response.headers) from error
        except AnswerRefused as error:
            raise self._refused(error) from error
        except openai.APIConnectionError as error:
            refused = isinstance(error.__cause__, AnswerRefused)
            raise (self._refused(error.__cause__) if refused else self._no_connection(error)) from error
        except openai.APIError as error:  # an error in the middle of a stream
            raise self.error_in_answer(model, error.body) from error
        except UnicodeEncodeError as error:  # a ValueError too, so it stands before it
            message = "The conversation holds characters that cannot be sent as UTF-8."
            raise CallFailed(message, RefusalKind.TRANSCRIPT) from error
        except ValueError as error:  # what came is no JSON
            raise self.not_an_answer() from error

    def error_in_answer(self, model: str, body: object) -> CallFailed:
        """Returns the error of an answer whose status was 200."""
        # Without a code it counts as 503 and is tried again.
        return self._refusal(model, code_in(body) or 503, body, {})

    def not_an_answer(self) -> CallFailed:
        message = f"{self._settings.host} did not answer in the way of Chat Completions. Check model.base_url."
        return CallFailed(message, RefusalKind.AGAIN)

    def _refused(self, why: BaseException | None) -> CallFailed:
        return CallFailed(f"{self._settings.host} {why}", RefusalKind.AGAIN)

    def _silent(self) -> CallFailed:
        seconds = self._settings.timeout_seconds
        return CallFailed(f"{self._settings.host} was silent for {seconds:g} s.", RefusalKind.AGAIN, silent=True)

    def _no_connection(self, error: BaseException) -> CallFailed:
        """Returns the error of a call that reached nobody."""
        # The transport calls a refused connection a timeout too; only the first cause tells them apart.
        error = _first_cause(error)
        if isinstance(error, TimeoutError):
            return self._silent()
        why = " ".join(without_keys(_reason(error), self._settings.api_key).split()) or type(error).__name__
        return CallFailed(f"{self._settings.host} cannot be reached: {why}", RefusalKind.AGAIN)

    def _refusal(self, model: str, status: int, body: object, headers: Mapping[str, str]) -> CallFailed:
        return refusal(self._settings.host, model, self._settings.api_key, status, body, headers)

    async def reported_window(self, model: str) -> int | None:
        """Returns the window of this model as the endpoint tells it, 0 where it does not, None where it could not be asked."""
        import openai

        try:
            async with asyncio.timeout(ASK_WINDOW_SECONDS):
                client = await self.client()
                found = from_models(await client.get("/models", cast_to=object), model)
                return found or (await self._from_ollama(model) if self._is_local else None) or 0
        except (openai.APIStatusError, ValueError):  # it knows no such question
            return 0
        except (TimeoutError, openai.APIError) as error:
            log.debug("model.window_not_asked", model=model, error=type(error).__name__)
            return None

    @property
    def _is_local(self) -> bool:
        """Returns whether this may be Ollama, which takes no key. Endpoints with a key name their windows in /models, or nowhere."""
        return not self._settings.api_key or ":11434" in self._settings.host

    async def _from_ollama(self, model: str) -> int | None:
        client = await self.client()
        root = self._settings.base_url.rstrip("/").removesuffix("/v1")
        return from_ollama(await client.post(f"{root}/api/show", cast_to=object, body={"model": model}))


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _reason(error: BaseException) -> str:
    """Returns the cause in words: `connection refused` for `[Errno 111] Connect call failed ('127.0.0.1', 9)`."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return re.sub(r"\[Errno -?\d+\] ", "", str(error))


def _import_library() -> None:
    import_deferring("openai", below="openai.types")
    import_module("gateway.agent.models.answer_limits")
    with contextlib.suppress(ImportError):  # else its first answer loads this, and holds up the event loop
        import_module("anyio._backends._asyncio")


def _new_client(settings: ModelSettings) -> "openai.AsyncOpenAI":
    import openai

    from gateway.agent.models.answer_limits import limiting

    return openai.AsyncOpenAI(
        base_url=settings.base_url,
        api_key=settings.api_key or "none",  # local servers want none, the library insists on one
        max_retries=0,
        timeout=openai.Timeout(settings.timeout_seconds, connect=min(CONNECT_SECONDS, settings.timeout_seconds)),
        default_headers={"Accept-Encoding": "identity"},
        # A third less CPU for each call than the default transport. A redirect would take the conversation to another place.
        http_client=openai.DefaultAioHttpClient(
            follow_redirects=False, event_hooks={"response": [limiting(settings.answer_bytes)]}
        ),
    )


OLLAMA_HOST, OLLAMA_PORT = "127.0.0.1", 11434
OLLAMA = f"http://{OLLAMA_HOST}:{OLLAMA_PORT}/v1"


def ask_ollama(host: str = OLLAMA_HOST, port: int = OLLAMA_PORT, *, timeout: float = 0.5) -> str | None:
    """The model that a local Ollama would answer with; None if there is none. Blocks for `timeout` at most twice."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", "/api/tags")
        response = connection.getresponse()
        answer: Any = json.loads(response.read(1_000_000)) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None  # nothing listens there, or something else does
    finally:
        connection.close()
    models: Any = cast(dict[str, Any], answer).get("models") if isinstance(answer, dict) else None
    entries = cast(list[Any], models) if isinstance(models, list) else []
    names = [str(cast(dict[str, Any], entry).get("name", "")) for entry in entries if isinstance(entry, dict)]
    return next((name for name in names if name and "embed" not in name), None)
