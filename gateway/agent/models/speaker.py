"""Has an endpoint say a text aloud, over `/audio/speech`."""

import asyncio
import time

from gateway.agent.models.endpoint import ModelEndpoint, ModelSettings
from gateway.agent.models.errors import CallFailed
from gateway.config.sections import VoiceSection

_SECONDS = 10.0
_CHARACTERS_A_SECOND = 200
"""How many characters an endpoint has to turn into speech in one second, after the first ten."""
_REST_SECONDS = 300.0
"""An endpoint that has not answered is left alone for so long: each answer would wait for it in vain."""


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
        settings, seconds = self._settings, _SECONDS + len(words) / _CHARACTERS_A_SECOND
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
