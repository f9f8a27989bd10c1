"""The composition root: the one place that wires the agent, its runs and the database. A daemon adds more: see `daemon`."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from importlib.metadata import version
from pathlib import Path

from gateway.agent.memory.embeddings import Embeddings
from gateway.agent.memory.fold_worker import FoldWorker
from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ask_ollama, model_settings
from gateway.agent.models.practice import PracticeModel
from gateway.agent.models.side_work import SideWork
from gateway.agent.tokens import Tokens
from gateway.agent.tools.mcp import McpServers
from gateway.agent.tools.process import Processes
from gateway.agent.tools.registry import Toolbox
from gateway.agent.tools.web import Web
from gateway.attachments.safe_fetch import Fetcher
from gateway.attachments.shared_files import SharedFiles
from gateway.config.model import Config
from gateway.config.model_choice import ChosenModel, choose_model
from gateway.config.reading import Loaded, secrets
from gateway.context import App
from gateway.dispatch import open_dispatch
from gateway.dispatch.fair_queue import FairPlaces
from gateway.dispatch.holders import Holders
from gateway.maintenance import Maintenance
from gateway.observe import heap
from gateway.observe.health import DatabaseWatch, ReloadStatus, Standstills
from gateway.observe.metrics import Metrics
from gateway.observe.redaction import hide
from gateway.runs.history import JournalTails, MemoryViews
from gateway.runs.live import LiveEvents
from gateway.runs.outages import ModelOutages
from gateway.runs.worker import Worker
from sessions import processes
from sessions.clock import Clock, now_ms
from sessions.db import Database, open_database
from sessions.resets import ResetPolicies
from sessions.restored import require_complete
from sessions.shared_folders import require_same_folder

CONNECTIONS_OF_MANY = 3
"""With PostgreSQL, for each of several processes of one home; two more when it has much to do."""


def assemble(home: Path, loaded: Loaded, chosen: ChosenModel, database: Database, *, clock: Clock = now_ms) -> App:
    """Returns the app with all that only keeps something. What works is still missing: model, dispatch, worker, folding and upkeep."""
    config = loaded.config
    app = App(
        home=home,
        loaded=loaded,
        chosen=chosen,
        database=database,
        clock=clock,
        metrics=Metrics(version("hermes-gateway"), frozenset(chosen.names(config.model))),
        timezone=config.session_reset.zone,
        tokens=Tokens(),
        live=LiveEvents(),
        tails=JournalTails(),
        views=MemoryViews(),
        outages=ModelOutages(),
        side_work=SideWork(),
        standstills=Standstills(clock),
        resets=ResetPolicies(config.session_reset.rules(), says_farewell=_says_farewell(config, chosen)),
        places=FairPlaces(config.limits.parallel_runs),
        web=Web(Fetcher(), clock, config.web),
        watch=DatabaseWatch(database),
        reloads=ReloadStatus(),
    )
    app.embeddings = Embeddings(app)
    app.processes = Processes(app)
    app.holders = Holders(app)
    app.mcp = McpServers(app)
    if database.dialect != "sqlite" and config.files.store == "database":
        app.files = SharedFiles(app)
    return app


@contextlib.asynccontextmanager
async def open_app(
    home: Path,
    loaded: Loaded,
    *,
    serves: bool = True,
    slot: int | None = None,
    pause: float = 0.0,
    clock: Clock | None = None,
) -> AsyncGenerator[App]:
    """Yields everything, wired and repaired after a crash, but not yet running. `serves` False: it works on no session key but those that are
    added to its dispatch, as a terminal does. `slot`: which of several processes of this home it is. `pause`: between the words of the practice model. `clock`:
    what everything takes for the time; None: the database's.
    """
    hide(secrets(loaded.config))
    chosen = await asyncio.to_thread(choose_model, loaded.config, loaded.variables, ask_ollama)
    database = await asyncio.to_thread(_open_database, home, loaded, slot)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.to_thread, database.close)
        await asyncio.to_thread(require_complete, home, database)
        if database.dialect != "sqlite" and loaded.config.files.store == "folder":
            await asyncio.to_thread(require_same_folder, home, database)
        clock = clock or database.clock
        app = assemble(home, loaded, chosen, database, clock=clock)
        app.slot, app.has_siblings = slot or 1, slot is not None
        app.model = _new_model(app, pause)
        stack.push_async_callback(_close_models, app)
        if app.files is not None:  # closed after the processes, whose files it stores
            stack.push_async_callback(app.files.aclose)
        stack.push_async_callback(app.embeddings.aclose)
        stack.push_async_callback(app.processes.aclose)
        stack.push_async_callback(app.mcp.aclose)
        if database.bus is None:  # else whoever keeps the house looks after them
            await database.write(processes.close_orphans, clock())
        app.upkeep = Maintenance(app)
        # Before any run is claimed: transcripts of sessions that a crash cut off are made whole first.
        await app.upkeep.repair()
        app.dispatch = await open_dispatch(app, serves=serves)
        app.live.connect(database.bus)
        app.worker = Worker(app)
        app.folding = FoldWorker(app)
        yield app
        # Only after a good end; after an error the next start repairs what is not up to date. Commands first: with the dispatch the heartbeat
        # ends, and others would note that nobody knows how they ended.
        await app.processes.aclose()
        await app.dispatch.close()
        await app.upkeep.close()


def _open_database(home: Path, loaded: Loaded, slot: int | None) -> Database:
    url = loaded.config.database.url.get_secret_value()
    return open_database(home, url) if slot is None else open_database(home, url, connections=CONNECTIONS_OF_MANY)


@contextlib.asynccontextmanager
async def running(app: App) -> AsyncGenerator[None]:
    """Works on runs and keeps transcripts, index and memory up to date while the block lasts; then drains the worker. When the worker fails,
    ends the block with that error: a process that takes messages and answers none is worse than a restart."""
    app.mcp.start()
    work, block = asyncio.create_task(app.worker.run()), asyncio.current_task()

    def end_block(ended: asyncio.Task[None]) -> None:
        if not ended.cancelled() and ended.exception() is not None and block is not None:
            block.cancel()  # `await work` below raises the error itself

    work.add_done_callback(end_block)
    works = [app.upkeep.run(), app.folding.run(), app.embeddings.run(), _warm_up(app)]
    if app.files is not None:
        works.append(app.files.run())
    beside = [asyncio.create_task(work) for work in works]
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


async def take_over(app: App, loaded: Loaded) -> None:
    """Puts this configuration into force, from the next step of every run on."""
    hide(secrets(loaded.config))
    chosen = app.chosen
    if is_other := loaded.config.model != app.config.model:
        chosen = await asyncio.to_thread(choose_model, loaded.config, loaded.variables, ask_ollama)
    # Only now, after the awaits: a failure above must leave the last good configuration in force as a whole.
    app.loaded, app.chosen = loaded, chosen
    app.agents, app.access = {}, {}
    app.resets.replace(loaded.config.session_reset.rules(), says_farewell=_says_farewell(loaded.config, chosen))
    app.embeddings.recheck()
    app.web.section = loaded.config.web
    app.mcp.follow()
    if is_other:
        app.former_models.append(app.model)  # calls that are under way still use it; it is closed with the app
        app.model = _new_model(app)


async def _warm_up(app: App) -> None:
    """Loads what the first message would wait for, and returns the memory that was needed only for loading it."""
    await app.model.warm_up()
    await asyncio.to_thread(lambda: Toolbox.of(app.config.agents["main"].tools).schemas)
    await asyncio.to_thread(heap.settle)


def _new_model(app: App, pause: float = 0.0) -> OpenAIModel | PracticeModel:
    if app.chosen.provider == "practice":
        return PracticeModel(pause=pause, tokens=app.tokens)
    settings = model_settings(app.config, app.chosen)
    return OpenAIModel(settings, tokens=app.tokens, observe=app.metrics.model_called)


async def _close_models(app: App) -> None:
    for model in (app.model, *app.former_models):
        await model.aclose()


def _says_farewell(config: Config, chosen: ChosenModel) -> bool:
    """Returns whether the agent can save something before a reset. The practice model would keep nothing."""
    tools = set(config.agents["main"].tools) - (set() if config.memory.enabled else {"memory"})
    return chosen.provider != "practice" and bool(tools & {"memory", "skill"})
