"""A fold worker on a real database and the real model client; what it extracts is scripted: these are tests of the plumbing, not of a
model's judgement."""

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from gateway.agent.memory.fold_worker import FoldWorker
from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.retry import RetryPolicy
from gateway.context import App
from sessions import memory, store
from sessions.db import Database
from sessions.db.schema import observations
from sessions.keys import SessionKey
from sessions.records import Message, Observation, Role, Session
from sessions.runs import source_of
from tests.app import make_app
from tests.conftest import HandClock
from tests.fakes.model_replies import Step
from tests.fakes.model_rules import Speaks
from tests.fakes.model_server import ModelServer

JSON = dict[str, Any]
KEY = "agent:main:telegram:dm"
NS = "agent:main"
_LINE = re.compile(r"^(\d+) (\S+) (.+?): (.*)$", re.MULTILINE)
_CANDIDATE = re.compile(r"^o(\d+) \S+ \w+: (.*)$", re.MULTILINE)


def folded_lines(body: JSON) -> list[tuple[int, str]]:
    """The messages that a fold was asked about: number and text."""
    return [(int(number), text) for number, _, _, text in _LINE.findall(body["messages"][1]["content"])]


def candidates(body: JSON) -> dict[int, str]:
    return {int(number): text for number, text in _CANDIDATE.findall(body["messages"][1]["content"])}


def answer(*notes: JSON, digest: str = "") -> str:
    return json.dumps({"observations": list(notes), "digest": digest})


def noted(text: str, *src: int, **more: Any) -> JSON:
    return {"kind": "fact", "text": text, "cause": None, "happened": None, "src": list(src), "replaces": None, **more}


def extractor(**known: JSON | None) -> Callable[[JSON], str]:
    """Scripted: a message that holds a known word (with _ for a space) becomes this note. `was` in it names the text of the note that it
    replaces."""

    def extract(body: JSON) -> str:
        notes: list[JSON] = []
        there = candidates(body)
        for number, text in folded_lines(body):
            for word, note in known.items():
                if word.replace("_", " ").casefold() in text.casefold():
                    fields = dict(note or {"text": text})
                    was = fields.pop("was", None)
                    replaces = next((n for n, said in there.items() if was and was in said), None)
                    notes.append(noted(fields.pop("text"), number, **{"replaces": replaces, **fields}))
        return answer(*notes, digest=f"{len(notes)} notes")

    return extract


@dataclass
class Folding:
    database: Database
    server: ModelServer
    worker: FoldWorker
    clock: HandClock
    folds: list[tuple[Any, ...]]
    app: App

    def say(self, *texts: str, key: str = KEY, sender: str | None = None) -> Session:
        """Messages of the user and the assistant in turn, a minute apart."""

        def write(conn: Connection) -> Session:
            parsed = SessionKey.parse(key)
            session = store.active(conn, key) or store.start(conn, parsed, self.clock(), source=source_of(parsed))
            for number, text in enumerate(texts):
                role = Role.ASSISTANT if number % 2 else Role.USER
                new = Message(role=role, content=text, sender=None if number % 2 else sender)
                store.append(conn, session.id, [new], self.clock.tick(60_000))
            return session

        return self.database.write_now(write)

    async def fold(self, session: Session, *, keep: int = 0) -> None:
        """Until nothing is left, or it is to be tried later."""
        while (again := await self.worker.fold(session.id, keep=keep)) is not None and again <= self.clock():
            pass

    def notes(self, ns: str = NS) -> list[Observation]:
        return self.database.read_now(memory.open_notes, ns)

    def texts(self, ns: str = NS) -> list[str]:
        return [note.text for note in self.notes(ns)]

    def everything(self) -> list[Observation]:
        def read(conn: Connection) -> Sequence[Observation]:
            return [Observation.from_row(row) for row in conn.execute(select(observations)).mappings()]

        return list(self.database.read_now(read))

    def state(self, ns: str = NS) -> memory.MemoryState:
        return self.database.read_now(memory.state, ns)


async def _at_once(_: float) -> None:
    pass


@asynccontextmanager
async def folding(
    database: Database,
    folds: Callable[[JSON], Step],
    *,
    window: int = 128_000,
    speaks: Speaks | None = None,
    fast: str | None = None,
    clock: HandClock | None = None,
) -> AsyncIterator[Folding]:
    async with ModelServer(folds=folds, speaks=speaks) as server:
        settings = ModelSettings(
            base_url=server.url,
            name="fake-model",
            api_key="sk-fake-key-1234567890",
            fast=fast or "",
            context_window=window,
        )
        model = OpenAIModel(settings, retry_policy=RetryPolicy(sleep=_at_once, jitter=lambda: 0.0))
        clock, seen = clock or HandClock(), []
        chosen = {"fast": fast or "", "max_output_tokens": 1_000}
        app = make_app(Path("/nonexistent"), database, model, clock=clock, sections={"model": chosen})
        app.metrics.folded = lambda *fold: seen.append(fold)
        try:
            yield Folding(app=app, database=database, server=server, worker=FoldWorker(app), clock=clock, folds=seen)
        finally:
            await model.aclose()
