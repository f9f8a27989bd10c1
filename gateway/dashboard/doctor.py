"""What `hermes doctor` finds, for the page: it runs as a command of its own, because its checks may wait for the network."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.dashboard.server import Visit

SECONDS = 60.0


@dataclass(slots=True)
class Findings:
    """`at`: when the checks ended; None: they are running. `problem`: why they could not be run."""

    at: int | None = None
    found: Sequence[dict[str, Any]] = ()
    problem: str = ""
    task: "asyncio.Task[None] | None" = None


def examine(visit: "Visit") -> None:
    """Starts the checks, unless they are running."""
    dashboard = visit.dashboard
    if dashboard.findings is not None and dashboard.findings.at is None:
        return
    running = dashboard.findings = Findings()
    running.task = asyncio.create_task(_run(visit, running))


async def _run(visit: "Visit", findings: Findings) -> None:
    command = (sys.executable, "-m", "gateway.cli.main", "doctor", "--json", "--home", str(visit.app.home))
    pipe = asyncio.subprocess.PIPE
    process = None
    try:
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
        async with asyncio.timeout(SECONDS):
            printed, _ = await process.communicate()
        findings.found = json.loads(printed)["findings"]
    except (OSError, TimeoutError, ValueError, KeyError):
        findings.problem = "The checks gave no answer. Run `hermes doctor` in a terminal."
    finally:
        with contextlib.suppress(ProcessLookupError):
            if process is not None:
                process.kill()
        findings.at = visit.app.clock()
        visit.dashboard.read_again()
