"""Commands of the agent in a chat: seen in /status, ended by /stop, and what is left of them when the daemon is killed with -9."""

import asyncio
from pathlib import Path
from typing import Any

from gateway.texts import say
from sessions import processes
from tests.e2e.telegram.daemon import process, scene
from tests.e2e.telegram.test_killed_in_time import rows
from tests.fakes.model_replies import Reply, call, calls
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer
from tests.machine import is_alive, until_gone

FREE = {"agents": {"main": {"tools": ["process"], "approve": ["process: *"]}}}


def runs(name: str) -> Reply:
    return calls(call("process", {"action": "start", "command": f"sh {name}.sh"}))


def lay(home: Path, name: str) -> None:
    """A command that never ends, ignores TERM, and detaches a part of itself. It writes down what it is."""
    folder = home / "workspace" / "agent:main"
    folder.mkdir(parents=True, exist_ok=True)
    script = (
        f"trap '' TERM; setsid sleep 603 & echo $! $$ > {name}.new; mv {name}.new {name}.pids; sleep 604; sleep 605"
    )
    (folder / f"{name}.sh").write_text(script)


async def pids(home: Path, name: str) -> list[int]:
    file = home / "workspace" / "agent:main" / f"{name}.pids"
    async with asyncio.timeout(60):
        while not file.exists():
            await asyncio.sleep(0.05)
    found = [int(pid) for pid in file.read_text().split()]
    assert all(map(is_alive, found))
    return found


async def test_status_lists_what_runs_in_the_background_and_stop_ends_it(home: Path) -> None:
    lay(home, "watch")
    async with ModelServer([runs("watch"), "It runs."]) as model:
        section = {"base_url": model.url, "name": "big", "api_key": "k"}
        async with scene(home, sections={"model": section, **FREE}) as s:
            s.app.processes._foreground_seconds = 0.2
            assert await s.answer_to("watch it") == "It runs."
            assert "sh watch.sh" in await s.answer_to("/status")
            there = await pids(home, "watch")
            assert say("process.stopped", command="sh watch.sh") in await s.answer_to("/stop")
            await until_gone(*there)
            # The row is closed a moment after its process has ended.
            await s.server.until(lambda: not s.app.database.read_now(processes.running, "agent:main:telegram:dm"))
            assert "sh watch.sh" not in await s.answer_to("/status")


async def test_nothing_of_a_killed_daemon_goes_on_and_the_model_learns_that_nobody_knows(home: Path) -> None:
    for name in ("background", "foreground"):
        lay(home, name)
    async with TelegramServer() as server, ModelServer([runs("background"), "It runs."]) as model:
        sections: dict[str, Any] = {"model": {"base_url": model.url, "name": "big", "api_key": "k"}, **FREE}
        ann = server.user(7, "Ann")
        dm = server.dm(ann)
        daemon = await process(home, server, sections=sections)
        server.user_says(dm, ann, "run it in the background")
        assert await server.answered(dm.id, timeout=60) == ["It runs."]
        there = await pids(home, "background")
        ((background,),) = rows(home, "SELECT id FROM processes WHERE outcome IS NULL")

        model.script = [runs("foreground")]
        server.user_says(dm, ann, "and this one")
        there += await pids(home, "foreground")
        daemon.kill()
        await daemon.wait()

        model.script = [calls(call("process", {"action": "poll", "id": background})), "Both are gone."]
        daemon = await process(home, server, sections=sections)
        answers = await server.answered(dm.id, 3, timeout=60)
        await until_gone(*there)
        daemon.terminate()
        await daemon.wait()
    assert "sh foreground.sh" in answers[1]  # nobody knows how far it came
    assert answers[2] == "Both are gone."
    assert rows(home, "SELECT DISTINCT outcome FROM processes") == [("unknown",)]
    told = [message["content"] for message in model.calls[-1].messages if message["role"] == "tool"]
    assert "unknown" in told[-2]
    assert "it ended with the gateway" in told[-1]
    assert server.violations == []
