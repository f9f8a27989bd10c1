"""`hermes gateway run --workers N`: one process holds the home and starts N that work, each a gateway of its own on the team's PostgreSQL.

They share the port, so the kernel spreads connections over them. One that ends is started again, after a pause that grows.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from gateway.cli import process
from gateway.observe.logging import get_logger

log = get_logger(__name__)

SLOT = "HERMES_WORKER"
"""The variable that tells a process which of the workers it is, counted from one."""
RESTARTED = "HERMES_WORKER_RESTARTED"
READY = "HERMES_WORKER_READY"
"""The descriptor to which a worker writes when it is ready."""
WRONG = 2
"""The exit code of a process that has refused its configuration: another try would be refused, too."""
_BACKOFF = (1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY_SECONDS = 60.0
_STOP_SECONDS = 40.0


def slot(environ: Mapping[str, str]) -> int | None:
    """Returns which worker of a parent this process is; None: it is none."""
    text = environ.get(SLOT, "")
    return int(text) if text.isdecimal() else None


def tell_ready(environ: Mapping[str, str]) -> None:
    """Tells the parent that this worker is ready."""
    text = environ.get(READY, "")
    if text.isdecimal():
        with contextlib.suppress(OSError):  # the parent has gone
            os.write(int(text), b"!")
            os.close(int(text))


class Workers:
    """The workers of one home, from the start to the end of `run`."""

    def __init__(self, home: Path, role: str, count: int) -> None:
        self._command = [
            sys.executable,
            "-m",
            "gateway.cli.main",
            "--home",
            str(home),
            "gateway",
            "run",
            "--role",
            role,
        ]
        self._count = count
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._waiting = set(range(1, count + 1))  # those that have not been ready yet
        self._ending = asyncio.Event()

    async def run(self) -> int:
        """Runs the workers until the end is asked for by a signal. Returns the exit code: that of a worker whose configuration is refused, else 0."""
        async with process.signals() as signals, asyncio.TaskGroup() as group:
            works = [group.create_task(self._keep(slot)) for slot in range(1, self._count + 1)]
            reloads = group.create_task(self._pass_on_reloads(signals))
            feeds = group.create_task(process.feed_watchdog())
            ended = group.create_task(signals.end.wait())
            done, _ = await asyncio.wait([ended, *works], return_when=asyncio.FIRST_COMPLETED)
            process.notify_systemd("STOPPING=1")
            # Lets all workers end in order, for some seconds at most.
            self._ending.set()
            self._send(signal.SIGTERM)
            if endings := [asyncio.ensure_future(running.wait()) for running in self._running.values()]:
                await asyncio.wait(endings, timeout=_STOP_SECONDS)
            self._send(signal.SIGKILL)
            for task in (ended, reloads, feeds):
                task.cancel()
            codes = [work.result() for work in works if work in done]
        return next((code for code in codes if code), 0)

    async def _keep(self, slot: int) -> int:
        """Starts this worker again whenever it ends. Returns its exit code once the end was asked for, or where another try would end alike."""
        failures, restarted = 0, False
        while True:
            began = time.monotonic()
            running = self._running[slot] = await self._start(slot, restarted=restarted)
            code = await running.wait()
            del self._running[slot]
            if self._ending.is_set() or code == WRONG:
                return code
            restarted, failures = True, 0 if time.monotonic() - began > _STEADY_SECONDS else failures + 1
            pause = _BACKOFF[min(failures, len(_BACKOFF)) - 1] if failures else _BACKOFF[0]
            log.error("worker.ended", worker=slot, code=code, restarts_in=pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)
                return code

    async def _start(self, slot: int, *, restarted: bool) -> asyncio.subprocess.Process:
        reads, writes = os.pipe()
        try:
            environ = {**os.environ, SLOT: str(slot), READY: str(writes), **({RESTARTED: "1"} if restarted else {})}
            started = await asyncio.create_subprocess_exec(
                *self._command, env=environ, stdin=asyncio.subprocess.DEVNULL, pass_fds=[writes]
            )
        finally:
            os.close(writes)
        loop = asyncio.get_running_loop()

        def answered() -> None:
            loop.remove_reader(reads)
            is_ready = bool(os.read(reads, 1))
            os.close(reads)
            if is_ready and slot in self._waiting:
                self._waiting.discard(slot)
                if not self._waiting:
                    process.notify_systemd("READY=1")
                    log.info("workers.ready", workers=self._count)

        loop.add_reader(reads, answered)
        log.info("worker.started", worker=slot, pid=started.pid)
        return started

    async def _pass_on_reloads(self, signals: process.Signals) -> None:
        while True:
            await signals.reload.wait()
            signals.reload.clear()
            self._send(signal.SIGHUP)

    def _send(self, number: signal.Signals) -> None:
        for running in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                running.send_signal(number)
