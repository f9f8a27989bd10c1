"""An app as the gateway wires it, on the database and the model that a test brings."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.agent.models.interface import Model
from gateway.agent.models.practice import PracticeModel
from gateway.agent.profile import AgentProfile
from gateway.agent.tools.registry import Tool, Toolbox
from gateway.app import assemble
from gateway.config.model import Config
from gateway.config.model_choice import ChosenModel
from gateway.config.reading import Loaded
from gateway.config.yaml_nodes import Document
from gateway.context import App
from sessions.clock import Clock, now_ms
from sessions.db import Database


def make_app(
    home: Path,
    database: Database,
    model: Model | None = None,
    *,
    clock: Clock = now_ms,
    name: str = "fake-model",
    sections: Mapping[str, Mapping[str, Any]] | None = None,
) -> App:
    """Without a model, the practice model answers. `sections` of the configuration; nothing is reset unless they say so."""
    document = Document(data={}, places={}, problems=[])
    config = changed(Config(), **{"session_reset": {"mode": "none", "timezone": "UTC"}, **(sections or {})})
    loaded = Loaded(config=config, warnings=(), variables={}, document=document)
    chosen = ChosenModel(provider="openai", base_url="", api_key="", name=name, why="")
    app = assemble(home, loaded, chosen, database, clock=clock)
    app.model = model or PracticeModel()
    return app


def configure(app: App, **sections: Mapping[str, Any]) -> None:
    """Changes the configuration in force, without the checks that a file has to pass."""
    app.loaded = replace(app.loaded, config=changed(app.config, **sections))


def changed(config: Config, **sections: Mapping[str, Any]) -> Config:
    return config.model_copy(
        update={name: getattr(config, name).model_copy(update=dict(values)) for name, values in sections.items()}
    )


def enable(app: App, platform: str) -> None:
    """Switches this platform on in the configuration. Nothing is started."""
    section = getattr(app.config.platforms, platform).model_copy(update={"enabled": True})
    configure(app, platforms={platform: section})


def give_tools(app: App, tools: Mapping[str, Tool], prompt: str = "You are tested.") -> None:
    """Makes the agent one with this prompt and these tools."""
    app.agents["main"] = AgentProfile(system_prompt=prompt, toolbox=Toolbox(tools))
