"""What differs from machine to machine, and from moment to moment on the same one."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from random import SystemRandom

import psutil


def free_port() -> int:
    """Below the range that the system takes for connections, which else might get it while a daemon is down."""
    dice = SystemRandom()  # the usual dice fall alike in every process of the tests
    while True:
        port = dice.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def until_it_waits(pid: int) -> None:
    """Until the process sleeps, which one that has just asked something does only in waiting for the answer."""
    process, ends = psutil.Process(pid), time.monotonic() + 30
    while process.status() != psutil.STATUS_SLEEPING:
        assert time.monotonic() < ends, f"it does not wait: {process.status()}"
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    return False


async def until_gone(*pids: int) -> None:
    async with asyncio.timeout(30):
        while any(map(is_alive, pids)):
            await asyncio.sleep(0.02)


@contextlib.contextmanager
def hand_driven_loop() -> Iterator[Callable[[float], None]]:
    """The clock of the running loop, and with it every timeout, moves only by what is given: the machine may stand still."""
    loop = asyncio.get_running_loop()
    now = loop.time()

    def passes(seconds: float) -> None:
        nonlocal now
        now += seconds

    loop.time = lambda: now  # type: ignore[method-assign]
    try:
        yield passes
    finally:
        del loop.time  # type: ignore[method-assign]
