"""Runs that are stopped at an awkward moment: before their first step, or together with the end of their session."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Connection

from gateway.runs.run import ActiveRun
from sessions import runs, store
from sessions.clock import now_ms
from sessions.errors import LeaseLost
from sessions.records import RunStatus
from sessions.runs import Opening
from tests.fakes.model_replies import Reply
from tests.integration.api.serving import gateway
from tests.integration.runs.test_going_on import ToolGate
from tests.integration.runs.worker_in_process import worker_in_process


async def test_the_model_is_not_asked_for_it(home: Path) -> None:
    async with gateway(home, works=False) as gw:
        path = "/v1/deployments/dep_main"
        _, sent, _ = await gw.ask("POST", f"{path}/messages", {"content": "x"})
        key = (await gw.database.read(runs.get, sent["run_id"])).session_key
        taken = await gw.database.write(runs.claim, key, "me", Opening(), now_ms(), lease_ms=60_000)
        assert taken is not None
        assert (await gw.ask("POST", f"{path}/runs/{taken.id}/cancel"))[0] == 202
        with pytest.raises(LeaseLost):
            await ActiveRun(gw.app, taken).refresh()


async def test_a_run_that_is_stopped_and_deleted_at_once_ends_no_other(home: Path, database_url: str) -> None:
    gate = ToolGate()
    async with worker_in_process(home, [Reply(text="never", before=gate), "four"], url=database_url) as it:
        run_id = (await it.accept("begin")).run_id
        assert run_id is not None
        await gate.reached.wait()

        def stop_and_delete(conn: Connection) -> None:
            runs.stop(conn, run_id, now_ms())
            store.delete_session(conn, runs.get(conn, run_id).session_id)

        await it.database.write(stop_and_delete)
        async with asyncio.timeout(5):
            assert (await it.say("two and two")).status is RunStatus.COMPLETED
