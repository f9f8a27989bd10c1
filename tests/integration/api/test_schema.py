"""The whole interface against its own description: what is described is accepted, what is not is refused, nothing breaks."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from gateway.api.desk import Bounds, Pauses
from gateway.api.openapi import describe
from gateway.api.server import ENDPOINTS
from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import OWNER, gateway

SCHEMA = schemathesis.openapi.from_dict(describe(ENDPOINTS, "0"))
STREAMS = "/v1/deployments/{deployment_id}/events"
SEMANTIC = {"/v1/chat/completions", "/v1/responses", "/v1/deployments/{deployment_id}/messages", "/webhooks/{platform}"}
"""Here a well-formed request can still make no sense: nothing new in it, a picture that is none, no signature."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in a thread of its own."""
    started, found = threading.Event(), []
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def main(home: Path) -> None:
        bounds = Bounds(wrong_keys_at_once=1e9, queue_per_session=10**6)
        async with (
            ModelServer(fast="ok") as model,
            gateway(home, model=model, bounds=bounds, pauses=Pauses(shutdown=0.1)) as gw,
        ):
            found.append(gw.url)
            started.set()
            await done.wait()

    home = tmp_path_factory.mktemp("home")
    thread = threading.Thread(target=lambda: loop.run_until_complete(main(home)))
    thread.start()
    assert started.wait(20)
    yield found[0]
    loop.call_soon_threadsafe(done.set)
    thread.join(20)
    loop.close()


@SCHEMA.exclude(path=STREAMS).parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_it_keeps_its_description(case: Any, url: str) -> None:
    excluded = [positive_data_acceptance] if case.path in SEMANTIC else []
    headers = {"Authorization": f"Bearer {OWNER.secret}"}
    case.call_and_validate(base_url=url, headers=headers, excluded_checks=excluded, timeout=10)
