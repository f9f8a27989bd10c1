"""The composition root: the one place that wires."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import SecretStr

from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.openai import OpenAIModel
from gateway.agent.models.practice import PracticeModel
from gateway.agent.tokens import Tokens
from gateway.agent.tools.registry import Toolbox
from gateway.agent.window import Window
from gateway.config.changes import leaves
from gateway.config.load import Loaded
from gateway.config.model import Config
from gateway.config.model_choice import ChosenModel, ask_ollama, choose_model
from gateway.dispatch.fair_queue import FairPlaces
from gateway.dispatch.local import LocalDispatch, OwnsKey, not_of_a_terminal
from gateway.maintenance import Maintenance
from gateway.observe.metrics import Metrics
from gateway.observe.redaction import hide
from gateway.runs.budget import RunLimits
from gateway.runs.services import AgentProfile, Services, SettleFile
from gateway.runs.worker import Worker
from sessions.completeness import require_complete
from sessions.db import Database, open_database
from sessions.records import Run, Session


@dataclass(slots=True, kw_only=True)
class CurrentConfig:
    """The configuration in force. A reload replaces what is in here, and everybody who asks gets the new one."""

    loaded: Loaded

    @property
    def config(self) -> Config:
        return self.loaded.config


@dataclass(slots=True)
class AttachmentHook:
    """How attachments are fetched: nobody does it until a daemon with platforms is there."""

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
    house: Services
    dispatch: LocalDispatch
    places: FairPlaces
    worker: Worker
    upkeep: Maintenance
    answering: CurrentModel
    files: AttachmentHook
    metrics: Metrics

    @property
    def chosen(self) -> ChosenModel:
        return self.answering.chosen

    async def take_over(self, loaded: Loaded) -> None:
        """From the next step of every run on, this configuration counts."""
        hide(_secrets(loaded.config))
        chosen = self.answering.chosen
        if is_other := loaded.config.model != self.settings.config.model:
            chosen = await asyncio.to_thread(choose_model, loaded.config, loaded.variables, ask_ollama)
        self.settings.loaded = loaded
        if is_other:
            former, self.answering.chosen = self.answering.model, chosen
            self.answering.model = _model(self.answering.chosen, loaded.config, self.house.tokens, 0.0, self.metrics)
            self.answering.former.append(former)


@contextlib.asynccontextmanager
async def open_app(
    home: Path, loaded: Loaded, *, mine: OwnsKey = not_of_a_terminal, pause: float = 0.0
) -> AsyncGenerator[App]:
    """Everything, wired and repaired after a crash, but not yet running. `pause`: between the words of the practice model."""
    settings = CurrentConfig(loaded=loaded)
    hide(_secrets(loaded.config))
    chosen = await asyncio.to_thread(choose_model, loaded.config, loaded.variables, ask_ollama)
    tokens = Tokens()
    metrics = Metrics(
        version("hermes-gateway"), frozenset({chosen.name, loaded.config.model.fast, *loaded.config.model.fallbacks})
    )
    answering = CurrentModel(_model(chosen, loaded.config, tokens, pause, metrics), chosen)
    files = AttachmentHook()
    database = await asyncio.to_thread(open_database, home, loaded.config.database.url.get_secret_value())
    try:
        await asyncio.to_thread(require_complete, home, database)
        house = _house(home, settings, database, answering, files, tokens, metrics)
        upkeep = Maintenance(home, database)
        await upkeep.repair()
        places = FairPlaces(loaded.config.limits.parallel_runs)
        dispatch = LocalDispatch(database, mine=mine, places=places)
        worker = Worker(house, dispatch)
        yield App(
            home=home,
            settings=settings,
            database=database,
            house=house,
            dispatch=dispatch,
            places=places,
            worker=worker,
            upkeep=upkeep,
            answering=answering,
            files=files,
            metrics=metrics,
        )
        dispatch.close()
        await upkeep.close()
    finally:
        await answering.aclose()
        await asyncio.to_thread(database.close)


@contextlib.asynccontextmanager
async def running(app: App) -> AsyncGenerator[None]:
    """Runs are worked on and the mirrors follow while the block lasts; then the work is drained."""
    work = asyncio.create_task(app.worker.run())
    beside = [asyncio.create_task(app.upkeep.run()), asyncio.create_task(_warm_up(app))]
    try:
        yield
    finally:
        await app.worker.drain()
        await work
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


async def _warm_up(app: App) -> None:
    """Load what the first message would wait for."""
    await app.answering.model.warm_up()
    await asyncio.to_thread(lambda: Toolbox.of(app.settings.config.agents["main"].tools).schemas)


def _model(
    chosen: ChosenModel, config: Config, tokens: Tokens, pause: float, metrics: Metrics
) -> OpenAIModel | PracticeModel:
    if chosen.provider == "practice":
        return PracticeModel(pause=pause, tokens=tokens)
    settings = ModelSettings(
        base_url=chosen.base_url,
        name=chosen.name,
        api_key=chosen.api_key,
        fast=config.model.fast,
        fallbacks=tuple(config.model.fallbacks),
        context_window=config.model.context_window,
        window_is_known="context_window" in config.model.model_fields_set,
        max_output_tokens=config.model.max_output_tokens,
        timeout_seconds=config.model.timeout_seconds,
        answer_bytes=config.limits.answer_bytes,
    )
    return OpenAIModel(settings, tokens=tokens, observe=metrics.model_called)


def _house(
    home: Path,
    settings: CurrentConfig,
    database: Database,
    answering: CurrentModel,
    files: AttachmentHook,
    tokens: Tokens,
    metrics: Metrics,
) -> Services:
    def window(name: str | None) -> Window:
        return Window(size=answering.model.window(name), output=settings.config.model.max_output_tokens)

    async def settle_file(attachment: Mapping[str, Any], inbox: Path) -> tuple[dict[str, Any], str]:
        if files.settle is None:
            return {**attachment, "gone": True}, ""
        return await files.settle(attachment, inbox)

    return Services(
        home=home,
        database=database,
        model=lambda: answering.model,
        profile=lambda run, session: _profile(settings.config, run, session),
        limits=lambda: _limits(settings.config),
        window=window,
        tokens=tokens,
        timezone=timezone_of(settings.config),
        settle_file=settle_file,
        run_ended=metrics.run_ended,
        tool_ran=metrics.tool_ran,
    )


def _profile(config: Config, run: Run, session: Session) -> AgentProfile:
    agent = config.agents.get(session.agent) or config.agents["main"]
    names = [name for name in agent.tools if name != "memory" or config.memory.enabled]
    return AgentProfile(
        system_prompt=run.options.get("system_prompt") or agent.system_prompt, toolbox=Toolbox.of(names)
    )


def _limits(config: Config) -> RunLimits:
    limits = config.limits
    return RunLimits(
        steps=limits.steps_per_run,
        tokens=limits.tokens_per_run,
        seconds=limits.seconds_per_run,
        tokens_per_day=limits.tokens_per_day,
        spend_per_day=limits.spend_per_day,
        input_price=limits.price_per_million_input_tokens,
        output_price=limits.price_per_million_output_tokens,
    )


def timezone_of(config: Config) -> str:
    """The configured one, else the machine's, else UTC."""
    return config.session_reset.timezone or machine_timezone()


def machine_timezone() -> str:
    try:
        name = Path("/etc/localtime").resolve().as_posix().partition("zoneinfo/")[2]
        ZoneInfo(name)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return "UTC"
    return name


def _secrets(config: Config) -> list[str]:
    """Every value of a secret key, found by its type."""
    return [value.get_secret_value() for _, value in leaves(config) if isinstance(value, SecretStr)]
