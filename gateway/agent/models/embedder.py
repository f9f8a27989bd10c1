"""Asks an endpoint for the vectors of texts, over `/embeddings`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from gateway.agent.models.endpoint import ModelEndpoint, ModelSettings
from gateway.agent.models.errors import CallFailed
from gateway.agent.models.interface import JSON
from gateway.agent.models.quirks import RefusalKind

if TYPE_CHECKING:
    from gateway.config.model import Config

MOST_DIMENSIONS = 8_192
LARGEST = 1e30  # the square of a larger number may overflow when the vector is scaled to length one

Vector = Sequence[float]


def embedding_settings(config: "Config") -> ModelSettings | None:
    """Returns the endpoint for vectors; None: nothing is searched by meaning."""
    section = config.memory.embeddings
    if not section.base_url or not config.memory.enabled:
        return None
    return ModelSettings(base_url=section.base_url, name=section.model, api_key=section.api_key.get_secret_value())


class Embedder:
    """Never repeats a failed call: search goes on with words alone."""

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self._endpoint = ModelEndpoint(settings)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Returns one vector for each text, in their order. Raises ModelError."""
        client, model = await self._endpoint.client(), self.settings.name
        body = {"model": model, "input": list(texts), "encoding_format": "float"}
        try:
            async with self._endpoint.translating_errors(model):
                answer = await client.post("/embeddings", cast_to=object, body=body)
                if (found := _vectors(answer, len(texts))) is not None:
                    return found
                message = f"{self.settings.host} did not answer with a vector for each text. Check memory.embeddings."
                raise CallFailed(message, RefusalKind.AGAIN)
        except CallFailed as failure:
            raise failure.as_model_error() from failure


def _vectors(answer: object, count: int) -> list[Vector] | None:
    """Returns the vectors in their order; None where they are not what was asked for."""
    rows: list[Any] = cast(JSON, answer).get("data") or [] if isinstance(answer, dict) else []
    found: dict[int, Vector] = {}
    for place, row in enumerate(rows):
        fields = cast(JSON, row) if isinstance(row, dict) else {}
        index = fields.get("index", place)  # without one, the order counts
        if not isinstance(index, int) or not _is_vector(fields.get("embedding")):
            return None
        found[index] = fields["embedding"]
    if sorted(found) != list(range(count)) or len({len(vector) for vector in found.values()}) > 1:
        return None
    return [found[place] for place in range(count)]


def _is_vector(found: object) -> bool:
    numbers = cast(list[object], found) if isinstance(found, list) else []
    # The comparison is false for infinity and NaN too, and takes whole numbers of any length.
    return 0 < len(numbers) <= MOST_DIMENSIONS and all(
        isinstance(number, int | float) and abs(number) < LARGEST for number in numbers
    )
