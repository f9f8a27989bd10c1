"""What Prometheus reads: every number has somebody who counts it."""

import asyncio
import socket
from pathlib import Path

from sessions import leases, workers
from sessions.leases import HOUSE
from sessions.workers import WorkerRow, WorkerState
from tests.fakes.model_replies import Reply, call, calls
from tests.integration.api.serving import READER, Gateway, gateway
from tests.integration.api.test_deployments import send, settled

FAMILIES = {
    "hermes_build_info",
    "hermes_config_last_reload_successful",
    "hermes_embeddings_total",
    "hermes_event_loop_lag_seconds",
    "hermes_fold_seconds",
    "hermes_fold_tokens_total",
    "hermes_inbox_oldest_seconds",
    "hermes_messages_total",
    "hermes_model_request_seconds",
    "hermes_model_tokens_total",
    "hermes_outbox_messages",
    "hermes_outbox_oldest_due_seconds",
    "hermes_platform_last_success_timestamp_seconds",
    "hermes_platform_up",
    "hermes_reply_seconds",
    "hermes_job_slots_total",
    "hermes_runs",
    "hermes_runs_ended_total",
    "hermes_tool_seconds",
}


async def scraped(gw: Gateway) -> list[str]:
    status, text, _ = await gw.ask("GET", "/metrics", key=READER)
    assert status == 200
    return text.decode().splitlines()


async def value(gw: Gateway, series: str) -> float:
    return next((float(line.rpartition(" ")[2]) for line in await scraped(gw) if line.startswith(f"{series} ")), 0.0)


async def test_the_families_are_those_that_are_documented(home: Path) -> None:
    async with gateway(home) as gw:
        found = {line.split()[2] for line in await scraped(gw) if line.startswith("# TYPE hermes_")}
        assert found == FAMILIES
        assert any(line.startswith("process_resident_memory_bytes ") for line in await scraped(gw))


async def test_a_turn_is_counted_from_its_message_to_its_answer(home: Path) -> None:
    script = [calls(call("files", {"action": "list"})), "No files.", "Hello.", "Hello again."]
    async with gateway(home, script) as gw:
        await settled(gw, "dep_main", (await send(gw, "dep_main", "which files?"))["run_id"])
        await gw.chat("hi")
        await gw.chat("hi", "s")
        for series, expected in {
            'hermes_messages_total{direction="in",platform="thread"}': 1,
            'hermes_messages_total{direction="out",platform="thread"}': 1,
            'hermes_messages_total{direction="in",platform="api"}': 2,
            'hermes_messages_total{direction="out",platform="api"}': 2,
            'hermes_reply_seconds_count{platform="thread"}': 1,
            'hermes_reply_seconds_count{platform="api"}': 2,
            'hermes_runs_ended_total{reason="done"}': 2,
            'hermes_model_request_seconds_count{model="big",outcome="answered"}': 4,
            'hermes_tool_seconds_count{outcome="done",tool="files"}': 1,
        }.items():
            assert await value(gw, series) == expected, series
        assert await value(gw, 'hermes_model_tokens_total{kind="input",model="big"}') > 0


async def test_every_way_to_end_is_counted(home: Path) -> None:
    script = [Reply(text="and then", finish_reason="length"), Reply(text="never", before=asyncio.Event().wait)]
    async with gateway(home, script) as gw:
        await settled(gw, "dep_main", (await send(gw, "dep_main"))["run_id"])
        sent = await send(gw, "dep_main")
        assert await value(gw, 'hermes_runs{status="running"}') == 1
        await gw.ask("POST", f"/v1/deployments/dep_main/runs/{sent['run_id']}/cancel")
        async with asyncio.timeout(60):
            for reason in ("budget", "cancelled"):
                while await value(gw, f'hermes_runs_ended_total{{reason="{reason}"}}') != 1:
                    await asyncio.sleep(0.005)
        assert await value(gw, 'hermes_runs{status="running"}') == 0


async def test_of_a_team_one_home_tells_the_numbers_of_the_database_and_each_worker_its_own(
    home: Path, postgres_url: str
) -> None:
    async with gateway(home, database_url=postgres_url, works=False) as gw:
        now = gw.database.clock()
        await gw.database.write(leases.take, {HOUSE}, "house#0", now)
        async with gw.app.holders.taking():
            gw.app.slot, gw.app.has_siblings = 2, True
            assert not [line for line in await scraped(gw) if line.startswith("hermes_runs{")]
            assert await value(gw, 'hermes_config_last_reload_successful{worker="2"}') == 1
            row = WorkerRow(
                name="first of this home",
                owner="house#0",
                host=socket.gethostname(),
                pid=1,
                version="1",
                role="all",
                state=WorkerState.READY,
                started_at=now,
                last_seen=now,
                report={"home": str(home)},
            )
            await gw.database.write(workers.report, row)
            assert 'hermes_runs{status="running"} 0.0' in await scraped(gw)
