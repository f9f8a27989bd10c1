"""Commands of the agent: what they print, how long they may run, and that nothing of them is left behind."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.tools.process import Processes
from gateway.agent.tools.registry import Toolbox, ToolContext
from gateway.context import App
from gateway.dispatch import open_dispatch
from sessions import processes, store
from sessions.db import Database, bus, open_database
from sessions.errors import Unusable
from sessions.keys import SessionKey
from sessions.records import Session, Source
from tests.app import configure, make_app
from tests.integration.runs.worker_in_process import stop_heart
from tests.machine import is_alive, until_gone

TOOL = Toolbox.of(["process"]).tools["process"]
KEY = SessionKey.parse("agent:main:telegram:dm")


class Commands:
    """The tool in one chat."""

    def __init__(self, app: Any, place: ToolContext) -> None:
        self.app, self.place = app, place

    async def use(self, **arguments: Any) -> str:
        outcome = await TOOL.run(self.place, json.dumps(arguments))
        assert isinstance(outcome, str)
        return outcome

    async def start(self, command: str) -> tuple[str, str]:
        """Returns the id and all that the model reads."""
        told = await self.use(action="start", command=command)
        found = re.match(r"id: (\w+)\n", told)
        assert found, told
        return found[1], told

    async def background(self, command: str) -> str:
        found, told = await self.start(command)
        assert told.splitlines()[1] == "running"
        return found

    async def until(self, is_so: Callable[[str], bool], process_id: str) -> str:
        async with asyncio.timeout(60):
            while not is_so(told := await self.use(action="poll", id=process_id)):
                await asyncio.sleep(0.02)
        return told


@pytest.fixture
async def commands(home: Path, sqlite: Database, clock: Any) -> AsyncIterator[Commands]:
    app = make_app(home, sqlite, clock=clock)
    app.processes = Processes(app, foreground_seconds=1)
    session = sqlite.write_now(store.start, KEY, 1, source=Source.TELEGRAM, ns="owner")
    yield Commands(app, in_chat(app, session))
    await app.processes.aclose()


def in_chat(app: App, session: Session) -> ToolContext:
    return ToolContext(
        session=session,
        database=app.database,
        workspace=app.home / "workspace" / "owner",
        skills=app.skills,
        outgoing=app.outgoing,
        clock=app.clock,
        idem_key="k",
        run_id="r",
        processes=app.processes,
    )


async def test_a_command_works_in_the_workspace_with_a_clean_environment(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    _, told = await commands.start("pwd; env; echo oops >&2; exit 3")
    assert told.splitlines()[1] == "exit code 3"
    assert str(commands.place.workspace) in told
    assert f"HOME={commands.app.tool_home}" in told
    assert "oops" in told
    assert "sk-secret" not in told
    assert "data from outside" in told
    assert (commands.app.tool_home.stat().st_mode & 0o777) == 0o700


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        ({"action": "start", "command": "ls"}, True),
        ({"action": "start"}, False),
        ({"action": "start", "command": "ls \0"}, False),
        ({"action": "start", "command": "ls \ud800"}, False),
        ({"action": "poll", "id": "a", "command": "ls"}, False),
    ],
)
async def test_nobody_is_asked_about_what_cannot_run(commands: Commands, arguments: dict[str, str], asks: bool) -> None:
    assert TOOL.asks_first(json.dumps(arguments), doubtful=False) is asks
    if not asks:
        assert "failed" in (told := str(await TOOL.run(commands.place, json.dumps(arguments)))) or "wrong" in told


async def test_what_runs_longer_goes_on_in_the_background_and_is_polled_listed_and_killed(commands: Commands) -> None:
    found = await commands.background("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over")
    assert (
        await commands.use(action="list")
        == f"{found}  running  echo begun; while [ ! -e go ]; do sleep 0.05; done; echo over"
    )
    assert "begun" in await commands.until(lambda told: "begun" in told, found)
    (commands.place.workspace / "go").touch()
    assert "over" in await commands.until(lambda told: "exit code 0" in told, found)
    assert await commands.use(action="list") == "Nothing runs in the background."
    other = await commands.background("sleep 600")
    assert "ended on request" in await commands.use(action="kill", id=other)
    row = await commands.app.database.read(processes.get, other)
    assert row.outcome == "ended on request"


async def test_processes_of_another_chat_are_unknown(commands: Commands) -> None:
    found = await commands.background("sleep 600")
    key = SessionKey.parse("agent:main:telegram:group:-1")
    other = commands.place.database.write_now(store.start, key, 1, source=Source.TELEGRAM, ns="group")  # type: ignore[attr-defined]
    elsewhere = Commands(commands.app, replace(commands.place, session=other))
    for action in ("poll", "kill"):
        assert "there is no process" in await elsewhere.use(action=action, id=found)
    assert await elsewhere.use(action="list") == "Nothing runs in the background."
    assert "running" in await commands.use(action="poll", id=found)


async def test_gigabytes_of_output_are_kept_in_part(commands: Commands) -> None:
    configure(commands.app, limits={"process_output_bytes": 100_000})
    found, _ = await commands.start("echo first; yes | head -c 50000000; echo last")
    told = await commands.until(lambda told: "exit code 0" in told, found)
    assert len(told) < 20_000
    assert "first" in told
    assert "last" in told
    assert "left out" in told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("exec python3 -c 'x = bytearray(900_000_000); import time; time.sleep(60)'", "bytes of memory"),
        ("exec python3 -c 'import os\nwhile True: os.fork()'", "more than 20 processes"),
    ],
)
async def test_what_grows_without_end_is_ended(commands: Commands, command: str, told: str) -> None:
    configure(commands.app, limits={"process_memory_bytes": 200_000_000, "process_count": 20})
    found, _ = await commands.start(command)
    assert told in await commands.until(lambda told: "running" not in told.splitlines()[1], found)


async def test_the_time_in_the_foreground_has_a_limit(commands: Commands) -> None:
    configure(commands.app, limits={"process_seconds": 1})
    _, told = await commands.start("sleep 600")
    assert "ended after 1 s" in told


async def test_what_ignores_term_and_detaches_itself_is_ended_with_the_rest(commands: Commands) -> None:
    found = await commands.background("trap '' TERM; (setsid sleep 601 & echo $!); echo $$; while :; do sleep 1; done")
    told = await commands.until(lambda told: len(re.findall(r"^\d+$", told, re.MULTILINE)) == 2, found)
    pids = [int(pid) for pid in re.findall(r"^\d+$", told, re.MULTILINE)]
    assert all(map(is_alive, pids))
    assert "ended on request" in await commands.use(action="kill", id=found)
    await until_gone(*pids)


async def test_a_stop_of_the_chat_ends_what_runs_in_the_background(commands: Commands) -> None:
    found = await commands.background("echo $$; sleep 600")
    told = await commands.until(lambda told: bool(re.search(r"^\d+$", told, re.MULTILINE)), found)
    pid = int(re.findall(r"^\d+$", told, re.MULTILINE)[0])
    stopped = await commands.app.database.write(processes.stop, str(KEY), 1)
    assert [row.id for row in stopped] == [found]
    await until_gone(pid)
    await commands.until(lambda told: "ended on request" in told, found)


async def test_nine_at_once_are_too_many(commands: Commands) -> None:
    commands.app.processes._foreground_seconds = 0.05
    for _ in range(8):
        await commands.background("sleep 600")
    assert "8 processes run here already" in await commands.use(action="start", command="echo x")


async def test_a_command_ends_with_the_process_that_supervises_it(commands: Commands) -> None:
    found = await commands.background("echo $$; sleep 600")
    told = await commands.until(lambda told: bool(re.search(r"^\d+$", told, re.MULTILINE)), found)
    commands.app.processes._kept[found].supervisor.kill()
    await until_gone(int(re.findall(r"^\d+$", told, re.MULTILINE)[0]))
    assert "was cut off" in await commands.until(lambda told: "running" not in told.splitlines()[1], found)
    assert await commands.use(action="list") == "Nothing runs in the background."


async def test_what_cannot_be_stored_is_not_run(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise Unusable("The disk is full.")

    monkeypatch.setattr(processes, "add", full)
    with pytest.raises(Unusable):
        await commands.start("touch done")
    monkeypatch.undo()
    await asyncio.gather(*commands.app.processes._tasks)
    assert not (commands.place.workspace / "done").exists()


async def test_with_the_gateway_everything_ends(home: Path, tmp_path: Path) -> None:
    """The supervisor's input ends when whoever has started it is killed with -9."""
    supervisor = Path("gateway/agent/tools/process_supervisor.py").resolve()
    settings = {
        "command": "trap '' TERM; (setsid sleep 602 & echo $! > detached); echo $$ > shell; while :; do sleep 1; done",
        "cwd": str(tmp_path),
        "env": {"PATH": os.environ["PATH"]},
        "cpu_seconds": 60,
        "memory_bytes": 10**9,
        "output_bytes": 1000,
        "count": 64,
    }
    parent = await asyncio.create_subprocess_exec(
        "python3",
        "-c",
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen(['python3', '-I', {str(supervisor)!r}], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)\n"
        f"p.stdin.write({json.dumps(settings)!r}.encode() + b'\\n'); p.stdin.flush(); time.sleep(600)",
    )
    async with asyncio.timeout(60):
        while not all(
            (tmp_path / name).exists() and (tmp_path / name).read_text().strip() for name in ("shell", "detached")
        ):
            await asyncio.sleep(0.02)
    pids = [int((tmp_path / name).read_text()) for name in ("shell", "detached")]
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await until_gone(*pids)


# --- two processes of the gateway on one PostgreSQL --------------------------------------------------------------------------


@asynccontextmanager
async def on_two_workers(home: Path, url: str, *, heard: bool = True) -> AsyncIterator[tuple[Commands, Commands]]:
    """The tool in one chat, in two workers. `heard`: they hear of each other; else each only looks by itself."""
    made: list[Commands] = []
    async with AsyncExitStack() as stack:
        for name in "ab":
            database = open_database(home, url)
            stack.callback(database.close)
            app = make_app(home / name, database, clock=database.clock)
            app.dispatch = await open_dispatch(app, serves=False)  # as `hermes chat` does
            stack.push_async_callback(app.dispatch.close)
            app.processes = Processes(app, foreground_seconds=0.4)
            stack.push_async_callback(app.processes.aclose)
            if not made:
                session = database.write_now(store.start, KEY, 1, source=Source.TELEGRAM, ns="owner")
            made.append(Commands(app, in_chat(app, session)))
        async with asyncio.timeout(10):
            while any(each.app.database.bus.is_alone or each.app.database.bus.steady_since is None for each in made):
                await asyncio.sleep(0.01)
        if not heard:
            for each in made:
                each.app.database.bus.publish = lambda _: None
        yield made[0], made[1]


@pytest.mark.parametrize("heard", [True, False])
async def test_another_worker_reads_what_was_printed_and_ends_it(
    home: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    if not heard:
        monkeypatch.setattr(bus, "BEAT_SECONDS", 0.1)
    async with on_two_workers(home, postgres_url, heard=heard) as (here, there):
        found = await here.background("echo begun; while [ ! -e go ]; do sleep 0.02; done; echo over; sleep 600")
        assert await there.use(action="list") == await here.use(action="list")
        told = await there.until(lambda told: "begun" in told, found)
        assert told.splitlines()[1] == "running"
        (here.place.workspace / "go").touch()
        assert "begun\nover" in await there.until(lambda told: "over" in told, found)
        assert "ended on request" in (told := await there.use(action="kill", id=found))
        assert "begun\nover" in told  # stored with the end
        again = await here.background("sleep 600")
        assert [row.id for row in await there.app.database.write(processes.stop, str(KEY), 1)] == [again]
        assert "ended on request" in await there.until(lambda told: "running" not in told.splitlines()[1], again)


async def test_a_worker_that_died_leaves_an_unknown_outcome_and_one_that_goes_on_after_all_ends_its_command(
    home: Path, postgres_url: str
) -> None:
    async with on_two_workers(home, postgres_url) as (dead, alive):
        found = await dead.background("echo $$; sleep 600")
        told = await alive.until(lambda told: bool(re.search(r"^\d+$", told, re.MULTILINE)), found)
        await alive.app.processes.close_orphans()
        assert await alive.app.database.read(processes.running, str(KEY)), "its worker lives"
        alive.app.database.write_now(stop_heart, dead.app)
        await alive.app.processes.close_orphans()
        assert await alive.app.database.read(processes.running, str(KEY)), "not steady: it may be all of them"
        assert "it ended with the gateway" in await alive.use(action="poll", id=found)
        alive.app.database.bus.steady_since -= 60
        await alive.app.processes.close_orphans()
        row = await alive.app.database.read(processes.get, found)
        assert (row.outcome, row.ended_at is not None) == (processes.UNKNOWN, True)
        assert await alive.app.database.read(processes.running, str(KEY)) == []  # it holds off no reset any more
        # It only stood still: what its chat takes for ended must not go on.
        await until_gone(int(re.findall(r"^\d+$", told, re.MULTILINE)[0]))
        assert (await alive.app.database.read(processes.get, found)).outcome == processes.UNKNOWN
