"""Search by meaning: vectors made behind the conversations, merged by rank, and never needed."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, select
from structlog.testing import capture_logs

from bench.gateway import MeasuredApp
from gateway.agent.memory import embeddings as subject
from gateway.agent.memory.embeddings import REST_MS, Embeddings
from gateway.agent.models.embedder import Embedder
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.interface import ModelError
from gateway.app import open_app, running
from gateway.config.reading import load
from gateway.config.sections import EmbeddingsSection
from gateway.context import App
from sessions import memory, store
from sessions.db import Database
from sessions.db.schema import note_vectors
from sessions.records import EndReason
from sessions.search import message_index
from sessions.search.query import SearchScope, any_of_its_words
from sessions.search.ranking import merged
from tests.app import configure, make_app
from tests.conftest import HandClock
from tests.fakes.embeddings_server import EmbeddingsServer
from tests.fakes.model_server import ModelServer
from tests.integration.memory.folding import NS
from tests.integration.sessions.writing import conversation, index_all

TOPICS = (("redis", "cache", "fast again"), ("meat", "vegetarian", "diet"), ("volvo", "car", "vehicle"))


def by_topic(text: str) -> list[float]:
    """As a model does that knows which words belong together."""
    said = text.casefold()
    return [1.0 * any(word in said for word in topic) for topic in TOPICS] + [0.1]


@dataclass
class EmbeddingsHarness:
    database: Database
    server: EmbeddingsServer
    embeddings: Embeddings
    clock: HandClock
    app: App
    outcomes: list[str] = field(default_factory=list)

    def choose(self, model: str | None) -> None:
        """Makes this the configured model; None: no endpoint is configured."""
        section = EmbeddingsSection(base_url=self.server.url if model else "", model=model or "")
        configure(self.app, memory={"embeddings": section})

    def note(self, text: str, ns: str = NS, **more: object) -> int:
        return self.database.write_now(memory.note, ns, text, self.clock(), **more).id  # type: ignore[arg-type]

    def vectors(self) -> dict[int, str]:
        def read(conn: Connection) -> dict[int, str]:
            return {row.id: row.model for row in conn.execute(select(note_vectors))}

        return self.database.read_now(read)

    async def near(self, question: str, ns: str = NS) -> list[int]:
        return self.database.read_now(memory.vectors.nearest, ns, await self.embeddings.of_query(question))


@asynccontextmanager
async def embeddings_in_process(database: Database) -> AsyncIterator[EmbeddingsHarness]:
    async with EmbeddingsServer(by_topic) as server:
        clock = HandClock()
        app = make_app(Path("/nonexistent"), database, clock=clock)
        it = EmbeddingsHarness(database=database, server=server, embeddings=app.embeddings, clock=clock, app=app)
        app.metrics.embedded = it.outcomes.append
        it.choose("small")
        try:
            yield it
        finally:
            await it.embeddings.aclose()


async def test_a_note_is_found_by_what_it_means_in_its_namespace_only(database: Database) -> None:
    async with embeddings_in_process(database) as it:
        it.note("We ripped out Redis", src=[7])
        it.note("I gave up meat", src=[8, 9])
        it.note("Their cache is large", ns="agent:main:telegram:group:-1", src=[10])
        assert await it.embeddings.make_some() is None
        assert (await it.near("which diet do I follow?"))[:2] == [8, 9]
        assert (await it.near("what about the cache?"))[0] == 7
        assert 10 not in await it.near("what about the cache?")
        assert await it.near("cache", "agent:main:telegram:group:-1") == [10]
        assert await it.near("cache", "agent:main:telegram:group:-2") == []


async def test_vectors_go_with_their_notes_and_are_made_anew_for_another_model(database: Database) -> None:
    async with embeddings_in_process(database) as it:
        kept, gone = it.note("The old Volvo was sold"), it.note("I gave up meat")
        await it.embeddings.make_some()
        assert it.vectors() == {kept: "small", gone: "small"}
        database.write_now(memory.forget, NS, gone)
        assert it.vectors() == {kept: "small"}
        database.write_now(memory.vectors.put, NS, "small", {gone: memory.vectors.packed([1.0])})
        assert it.vectors() == {kept: "small"}, "it was removed while its vector was made"
        it.choose("large")
        assert await it.near("which car?") == [], "of another model"
        await it.embeddings.make_some()
        assert it.vectors() == {kept: "large"}
        calls = len(it.server.asked)
        assert await it.embeddings.make_some() is None
        assert len(it.server.asked) == calls, "nothing to do, no call"
        database.write_now(memory.remove_namespace, NS)
        assert it.vectors() == {}


async def test_an_endpoint_that_is_away_is_told_of_once_and_left_alone_for_a_while(sqlite: Database) -> None:
    async with embeddings_in_process(sqlite) as it:
        it.note("We ripped out Redis", src=[7])
        it.server.refuses = 503
        with capture_logs() as events:
            again = await it.embeddings.make_some()
            assert again == pytest.approx(REST_MS / 1000)
            assert await it.near("the cache?") == []
            calls = len(it.server.asked)
            it.clock.tick(REST_MS)
            assert await it.near("the cache?") == []
            assert len(it.server.asked) == calls + 1 == 2
            it.server.refuses = 0
            it.clock.tick(REST_MS)
            assert await it.embeddings.make_some() is None
        assert [event["event"] for event in events] == ["embeddings.unavailable", "embeddings.back"]
        assert it.outcomes == ["failed", "failed", "answered"]
        assert await it.near("the cache?") == [7]


async def test_a_slow_endpoint_keeps_nobody_waiting(sqlite: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "QUERY_SECONDS", 0.05)
    async with embeddings_in_process(sqlite) as it:
        it.note("We ripped out Redis", src=[7])
        await it.embeddings.make_some()
        it.server.hangs = True
        assert await it.near("the cache?") == []
        assert it.outcomes == ["answered", "slow"]


@pytest.mark.parametrize(
    ("vector", "index"),
    [([], int), ([10**400, 1], int), ([1e200, 1.0], int), ([1.0], str), ([1.0], lambda place: [place]), ([1.0], bool)],
)
async def test_an_answer_without_usable_vectors_is_a_failure(
    vector: list[float], index: Callable[[int], object]
) -> None:
    async with EmbeddingsServer(lambda _: vector) as server:
        server.index = index
        embedder = Embedder(ModelSettings(base_url=server.url, name="small"))
        with pytest.raises(ModelError, match="a vector for each text"):
            await embedder.embed(["one", "two", "three"])
        await embedder.aclose()


async def test_nothing_is_called_where_nothing_is_configured(sqlite: Database) -> None:
    async with embeddings_in_process(sqlite) as it:
        it.note("We ripped out Redis")
        it.choose(None)
        assert await it.embeddings.make_some() is None
        assert await it.near("cache") == []
        assert it.server.asked == []


def test_two_rankings_are_merged_by_rank() -> None:
    assert merged([1, 2, 3], [3, 4]) == [3, 1, 2, 4]
    assert merged([], [5, 6]) == [5, 6]


def test_a_search_takes_both_and_phrases_are_taken_at_their_word(database: Database) -> None:
    session = conversation(
        database, "agent:main:telegram:dm", "we sold it to a collector", "ok", "the car is blue", "ok"
    )
    index_all(database)
    meant = database.read_now(store.last_messages, session.id, 9)[0].id
    query = any_of_its_words("car", 8)
    assert query is not None
    scope = SearchScope(ns=NS)
    both = [hit.message.content for hit in database.read_now(message_index.best, query, scope, limit=2, also=[meant])]
    assert sorted(map(str, both)) == ["the car is blue", "we sold it to a collector"]
    words = [hit.message.content for hit in database.read_now(message_index.search, '"the car"', ns=NS, also=[meant])]
    assert words == ["the car is blue"]


@pytest.mark.parametrize("configured", [True, False])
async def test_what_was_meant_is_in_the_prompt(home: Path, *, configured: bool) -> None:
    """Through the whole app: the note's vector is made in the background, and the question is answered by meaning."""
    async with ModelServer(then="noted") as model, EmbeddingsServer(by_topic, api_key="sk-embed") as server:
        section = {"base_url": server.url, "api_key": "sk-embed", "model": "small"}
        config = {
            "model": {"provider": "openai", "base_url": model.url, "name": "fake-model", "api_key": "sk-none"},
            "memory": {"embeddings": section} if configured else {},
        }
        (home / "config.yaml").write_text(json.dumps(config))
        async with open_app(home, load(home, {})) as app, running(app):
            measured = MeasuredApp(app)
            async with measured.open():
                await measured.say("1", "We ripped out Redis because prices were stale.")
                session = await app.database.read(store.active, "agent:main:telegram:dm:1")
                assert session is not None
                said = (await app.database.read(store.last_messages, session.id, 9))[0].id
                await app.database.write(memory.note, session.ns, "Redis was removed", 1, src=[said])
                await app.database.write(store.end, session.id, EndReason.USER, 2)
                await app.embeddings.make_some()
                while await app.database.write(message_index.index_some):
                    pass
                await measured.say("1", "how is it fast again without?")
                shown = str(model.bodies[-1]["messages"][-1]["content"])
                assert ("Ann: We ripped out Redis" in shown) is configured
                count = select(func.count()).select_from(note_vectors)
                assert await app.database.read(lambda conn: conn.scalar(count)) == int(configured)
