import importlib

import pytest

from gateway.chats import delivery, runner
from tests.e2e.platforms.driver import Driver

DRIVERS = {
    "whatsapp": "tests.e2e.platforms.whatsapp:WhatsAppDriver",
    "slack": "tests.e2e.platforms.slack:SlackDriver",
    "discord": "tests.e2e.platforms.discord:DiscordDriver",
}


def make(name: str) -> Driver:
    module, _, kind = DRIVERS[name].partition(":")
    return getattr(importlib.import_module(module), kind)()


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest) -> Driver:
    """Every platform's in turn."""
    return make(request.param)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between tries pass quickly."""
    for pauses in ("PROBE_PAUSES", "TRY_PAUSES", "BLIND_PAUSES"):
        monkeypatch.setattr(delivery, pauses, (0.05,))
    monkeypatch.setattr(delivery, "_BACKOFF", (0.05,))
    monkeypatch.setattr(runner, "_BACKOFF", (0.05,))
