"""A run that is stopped between being taken and being begun."""

from pathlib import Path

import pytest

from gateway.runs.run_steps import RunSteps
from sessions import runs
from sessions.clock import now_ms
from sessions.errors import LeaseLost
from sessions.runs import Opening
from tests.integration.api.serving import gateway


async def test_the_model_is_not_asked_for_it(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        path = "/v1/deployments/dep_main"
        _, sent, _ = await gw.ask("POST", f"{path}/messages", {"content": "x"})
        key = (await gw.database.read(runs.get, sent["run_id"])).session_key
        taken = await gw.database.write(runs.claim, key, "me", Opening(), now_ms(), lease_ms=60_000)
        assert taken is not None
        assert (await gw.ask("POST", f"{path}/runs/{taken.id}/cancel"))[0] == 202
        with pytest.raises(LeaseLost):
            await RunSteps(gw.services, taken).situation()
