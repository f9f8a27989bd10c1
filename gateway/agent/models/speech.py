"""Voice, at an endpoint for it: the text of a recording, over `/audio/transcriptions`, and a text said aloud, over `/audio/speech`."""

import asyncio
import time
from typing import TYPE_CHECKING, cast

from gateway.agent.models.chat_completions import Observe, ignore
from gateway.agent.models.endpoint import ModelEndpoint, ModelSettings
from gateway.agent.models.errors import CallFailed, CallOutcome
from gateway.agent.models.interface import JSON
from gateway.agent.models.quirks import RefusalKind
from gateway.agent.models.retry import Retries, RetryPolicy
from gateway.config.sections import VoiceSection

if TYPE_CHECKING:
    from gateway.config.model import Config

SPEAK_SECONDS = 10.0
_CHARACTERS_A_SECOND = 200
"""How many characters an endpoint has to turn into speech in one second, after the first ten."""
_REST_SECONDS = 300.0
"""An endpoint that has not answered is left alone for so long: each answer would wait for it in vain."""


def voice_settings(config: "Config") -> ModelSettings | None:
    """Returns the endpoint for voice messages; None: they are not turned into text."""
    voice = config.voice
    if not voice.base_url:
        return None
    key = voice.api_key.get_secret_value()
    return ModelSettings(base_url=voice.base_url, name=voice.model, api_key=key, transcription=voice.model)


class Transcriber:
    """Transcribes recordings with the endpoint that also answers."""

    def __init__(
        self, settings: ModelSettings, *, retry_policy: RetryPolicy | None = None, observe: Observe = ignore
    ) -> None:
        self.settings = settings
        self._retry_policy = retry_policy or RetryPolicy(last_attempts=3)
        self._observe = observe
        self._endpoint = ModelEndpoint(settings)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def transcribe(self, audio: bytes, name: str, *, language: str | None = None) -> str:
        """Returns the spoken words. `name` tells the format by its ending. Raises ModelUnreachable or ModelRefused."""
        retries = Retries(self._retry_policy, self.settings.timeout_seconds)
        while True:
            started = self._retry_policy.clock()
            try:
                client, model = await self._endpoint.client(), self.settings.transcription
                async with self._endpoint.translating_errors(model):
                    spoken = {"language": language} if language else {}
                    files = {"file": (name, audio)}
                    answer = await client.post(
                        "/audio/transcriptions",
                        cast_to=object,
                        body={"model": model, **spoken},
                        files=files,
                        # else the library sends the fields as JSON
                        options={"headers": {"Content-Type": "multipart/form-data"}},
                    )
                text = cast(JSON, answer).get("text") if isinstance(answer, dict) else None
                if not isinstance(text, str):
                    raise self._endpoint.not_an_answer()
                text = text.strip()
            except CallFailed as failure:
                self._observe(self.settings.transcription, failure.outcome, self._retry_policy.clock() - started, None)
                may_pass = failure.kind is RefusalKind.AGAIN
                wait = retries.next_wait(failure.wait, silent=failure.silent) if may_pass else None
                if wait is None:
                    raise failure.as_audio_error() from failure
                await self._retry_policy.sleep(wait)
            else:
                self._observe(
                    self.settings.transcription, CallOutcome.ANSWERED, self._retry_policy.clock() - started, None
                )
                return text


class NotSpoken(Exception):
    """There is no recording. `str()` says why, for the operator."""


class Speaker:
    """Speaks with the endpoint for voice messages."""

    def __init__(self, section: VoiceSection) -> None:
        key = section.api_key.get_secret_value()
        self._voice = section.speak_voice
        self._settings = ModelSettings(base_url=section.base_url, name=section.speak_model, api_key=key)
        self._endpoint = ModelEndpoint(self._settings)
        self._rests_until = 0.0

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def speak(self, words: str) -> bytes:
        """Returns the words as Opus in Ogg, the one format that every platform plays as a voice message. Asks once and for a bounded time,
        because the text of the answer waits meanwhile. Raises NotSpoken.
        """
        settings, seconds = self._settings, SPEAK_SECONDS + len(words) / _CHARACTERS_A_SECOND
        if time.monotonic() < self._rests_until:
            raise NotSpoken(f"{settings.host} has said nothing a moment ago.")
        body = {"model": settings.name, "voice": self._voice, "input": words, "response_format": "opus"}
        try:
            async with asyncio.timeout(seconds), self._endpoint.translating_errors(settings.name):
                client = await self._endpoint.client()
                from openai import HttpxBinaryResponseContent

                answer = await client.post("/audio/speech", cast_to=HttpxBinaryResponseContent, body=body)
                data = answer.content
        except TimeoutError as error:
            self._rests_until = time.monotonic() + _REST_SECONDS
            raise NotSpoken(f"{settings.host} has said nothing for {seconds:.0f} s.") from error
        except CallFailed as failure:
            raise NotSpoken(str(failure)) from failure
        if not data.startswith(b"OggS"):
            raise NotSpoken(f"{settings.host} does not send Opus in Ogg, which was asked for.")
        return data
