"""The composition root: the one place that wires the agent, its runs and the database. A daemon adds more: see `daemon`."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from gateway.agent.memory.embeddings import Embeddings
from gateway.agent.memory.fold_worker import FoldWorker
from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ask_ollama
from gateway.agent.models.practice import PracticeModel
from gateway.agent.tokens import Tokens
from gateway.agent.tools.registry import Toolbox
from gateway.agent.window import Window
from gateway.config.agent_settings import (
    agent_profile,
    can_save,
    describe_model,
    embedding_settings,
    fold_settings,
    model_settings,
    secrets,
)
from gateway.config.model import Config
from gateway.config.model_choice import ChosenModel, choose_model
from gateway.config.reading import Loaded
from gateway.dispatch.base import Dispatch
from gateway.dispatch.fair_queue import FairPlaces
from gateway.dispatch.local import LocalDispatch, OwnsKey, not_of_a_terminal
from gateway.maintenance import Maintenance
from gateway.observe import heap
from gateway.observe.metrics import Metrics
from gateway.observe.redaction import hide
from gateway.observe.standstill import Standstills
from gateway.runs.reset_policies import ResetPolicies
from gateway.runs.services import Services, SettleFile
from gateway.runs.worker import Worker
from sessions import spending
from sessions.clock import Clock, now_ms
from sessions.completeness import require_complete
from sessions.db import Database, open_database
from sessions.stored_files import StoredFile


@dataclass(slots=True, kw_only=True)
class CurrentConfig:
    """The configuration in force. A reload replaces what is in here, and everybody who asks gets the new one."""

    loaded: Loaded

    @property
    def config(self) -> Config:
        return self.loaded.config


@dataclass(slots=True)
class AttachmentHook:
    """How attachments are fetched. A daemon sets `settle` when its platforms are there; without one nothing is fetched."""

    settle: SettleFile | None = None


@dataclass(slots=True)
class CurrentModel:
    """The model that answers; a reload may put another in its place."""

    model: OpenAIModel | PracticeModel
    chosen: ChosenModel
    former: list[OpenAIModel | PracticeModel] = field(default_factory=list[OpenAIModel | PracticeModel])

    async def aclose(self) -> None:
        for model in (self.model, *self.former):
            await model.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    home: Path
    settings: CurrentConfig
    database: Database
    services: Services
    dispatch: Dispatch
    places: FairPlaces
    worker: Worker
    folding: FoldWorker
    embeddings: Embeddings
    upkeep: Maintenance
    answering: CurrentModel
    files: AttachmentHook
    metrics: Metrics

    async def take_over(self, loaded: Loaded) -> None:
        """Puts this configuration into force, from the next step of every run on."""
        hide(secrets(loaded.config))
        chosen = self.answering.chosen
        if is_other := loaded.config.model != self.settings.config.model:
            chosen = await asyncio.to_thread(choose_model, loaded.config, loaded.variables, ask_ollama)
        # Only now, after the awaits: a failure above must leave the last good configuration in force as a whole.
        self.settings.loaded = loaded
        self.services.resets.replace(loaded.config.session_reset.rules())
        self.embeddings.recheck()
        if is_other:
            former, self.answering.chosen = self.answering.model, chosen
            self.answering.model = _model(self.answering.chosen, loaded.config, self.services.tokens, 0.0, self.metrics)
            # Calls that are under way still use it; it is closed with the app.
            self.answering.former.append(former)


@contextlib.asynccontextmanager
async def open_app(
    home: Path,
    loaded: Loaded,
    *,
    mine: OwnsKey = not_of_a_terminal,
    pause: float = 0.0,
    clock: Clock = now_ms,
) -> AsyncGenerator[App]:
    """Yields everything, wired and repaired after a crash, but not yet running. `pause`: between the words of the practice model. `clock`:
    what everything takes for the time.
    """
    settings = CurrentConfig(loaded=loaded)
    hide(secrets(loaded.config))
    chosen = await asyncio.to_thread(choose_model, loaded.config, loaded.variables, ask_ollama)
    tokens = Tokens()
    metrics = Metrics(
        version("hermes-gateway"), frozenset({chosen.name, loaded.config.model.fast, *loaded.config.model.fallbacks})
    )
    answering = CurrentModel(_model(chosen, loaded.config, tokens, pause, metrics), chosen)
    files = AttachmentHook()
    database = await asyncio.to_thread(open_database, home, loaded.config.database.url.get_secret_value())
    embeddings = Embeddings(
        database, lambda: embedding_settings(settings.config), observe=metrics.embedded, clock=clock
    )
    try:
        await asyncio.to_thread(require_complete, home, database)
        services = _services(home, settings, database, answering, files, tokens, metrics, clock, embeddings)
        upkeep = Maintenance(home, database, clock=clock, retention=lambda: settings.config.retention)
        # Before any run is claimed: transcripts of sessions that a crash cut off are made whole first.
        await upkeep.repair()
        places = FairPlaces(loaded.config.limits.parallel_runs)
        dispatch = LocalDispatch(database, mine=mine, opening=services.resets.opening, clock=clock, places=places)
        worker = Worker(services, dispatch)
        yield App(
            home=home,
            settings=settings,
            database=database,
            services=services,
            dispatch=dispatch,
            places=places,
            worker=worker,
            folding=_folding(services, settings, metrics),
            embeddings=embeddings,
            upkeep=upkeep,
            answering=answering,
            files=files,
            metrics=metrics,
        )
        # Only after a good end; after an error the next start repairs what is not up to date.
        dispatch.close()
        await upkeep.close()
    finally:
        await embeddings.aclose()
        await answering.aclose()
        await asyncio.to_thread(database.close)


@contextlib.asynccontextmanager
async def running(app: App) -> AsyncGenerator[None]:
    """Works on runs and keeps transcripts, index and memory up to date while the block lasts; then drains the worker. When the worker fails,
    ends the block with that error: a process that takes messages and answers none is worse than a restart."""
    work, block = asyncio.create_task(app.worker.run()), asyncio.current_task()

    def end_block(ended: asyncio.Task[None]) -> None:
        if not ended.cancelled() and ended.exception() is not None and block is not None:
            block.cancel()  # `await work` below raises the error itself

    work.add_done_callback(end_block)
    beside = [
        asyncio.create_task(work) for work in (app.upkeep.run(), app.folding.run(), app.embeddings.run(), _warm_up(app))
    ]
    try:
        yield
    finally:
        work.remove_done_callback(end_block)
        # The worker first: what its last steps commit is still mirrored.
        await app.worker.drain()
        try:
            await work
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


async def _warm_up(app: App) -> None:
    """Loads what the first message would wait for, and returns the memory that was needed only for loading it."""
    await app.answering.model.warm_up()
    await asyncio.to_thread(lambda: Toolbox.of(app.settings.config.agents["main"].tools).schemas)
    await asyncio.to_thread(heap.settle)


def _model(
    chosen: ChosenModel, config: Config, tokens: Tokens, pause: float, metrics: Metrics
) -> OpenAIModel | PracticeModel:
    if chosen.provider == "practice":
        return PracticeModel(pause=pause, tokens=tokens)
    return OpenAIModel(model_settings(config, chosen), tokens=tokens, observe=metrics.model_called)


def _folding(services: Services, settings: CurrentConfig, metrics: Metrics) -> FoldWorker:
    async def may_spend() -> bool:
        limits = services.limits()
        if not limits.counts_days:
            return True
        today = await services.database.read(spending.of_day, services.today())
        return limits.reached(steps=0, tokens=0, seconds=0, today=today) is None

    return FoldWorker(
        services.database,
        services.model,
        settings=lambda: fold_settings(settings.config),
        tokens=services.tokens,
        window=services.window,
        may_spend=may_spend,
        observe=metrics.folded,
        clock=services.clock,
    )


def _services(
    home: Path,
    settings: CurrentConfig,
    database: Database,
    answering: CurrentModel,
    files: AttachmentHook,
    tokens: Tokens,
    metrics: Metrics,
    clock: Clock,
    embeddings: Embeddings,
) -> Services:
    def window(name: str | None) -> Window:
        return Window(size=answering.model.window(name), output=settings.config.model.max_output_tokens)

    async def settle_file(file: StoredFile, inbox: Path) -> tuple[StoredFile, str]:
        if files.settle is None:
            return replace(file, gone=True), ""
        return await files.settle(file, inbox)

    def says_farewell() -> bool:
        is_practice = answering.chosen.provider == "practice"  # it would keep nothing
        return not is_practice and can_save(settings.config)

    return Services(
        home=home,
        database=database,
        model=lambda: answering.model,
        profile=lambda run, session: agent_profile(settings.config, run, session),
        limits=lambda: settings.config.limits,
        window=window,
        tokens=tokens,
        model_config=lambda: describe_model(settings.config, answering.chosen),
        fast=lambda: settings.config.model.fast or None,
        timezone=settings.config.session_reset.zone,
        settle_file=settle_file,
        embeddings=embeddings,
        clock=clock,
        standstills=Standstills(clock),
        resets=ResetPolicies(settings.config.session_reset.rules(), says_farewell=says_farewell),
        run_ended=metrics.run_ended,
        tool_ran=metrics.tool_ran,
    )
