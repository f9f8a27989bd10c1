"""What a call costs beside the model. Generous bounds: they catch a change of kind, not of degree."""

import time
from pathlib import Path

from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import gateway
from tests.machine import slowness


async def test_a_plain_call_costs_little(home: Path) -> None:
    """Client, gate and answer together."""
    async with ModelServer(fast="ok") as model, gateway(home, model=model) as gw:
        await gw.chat("warm")
        before = time.process_time()
        for _ in range(100):
            await gw.ask("GET", "/v1/models")
        assert (time.process_time() - before) / 100 < 0.005 * slowness()
