"""The fake endpoint for embeddings, through the client library itself."""

import openai
import pytest

from tests.fakes.embeddings_server import MODEL, EmbeddingsServer


async def test_it_answers_the_client_library_with_a_vector_for_each_text() -> None:
    async with (
        EmbeddingsServer(lambda text: [1.0, float(len(text))], api_key="sk-1") as server,
        openai.AsyncOpenAI(base_url=server.url, api_key="sk-1", max_retries=0) as client,
    ):
        made = await client.embeddings.create(model=MODEL, input=["a", "abc"], encoding_format="float")
        assert [(row.index, row.embedding) for row in made.data] == [(0, [1.0, 1.0]), (1, [1.0, 3.0])]
        with pytest.raises(openai.BadRequestError):
            await client.embeddings.create(model=MODEL, input=[""])
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="sk-2").embeddings.create(model=MODEL, input="a")
        server.refuses = 503
        with pytest.raises(openai.InternalServerError):
            await client.embeddings.create(model=MODEL, input="a")
