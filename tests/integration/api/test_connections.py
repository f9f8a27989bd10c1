"""What happens on a connection before there is a request: garbage, and silence."""

import asyncio
import json
import logging
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.api.http.connection import IdleTimes
from gateway.api.http.server_state import Intervals
from tests.integration.api.serving import connected, gateway, raw_answer
from tests.machine import hand_driven_loop

SECRET = "Authorization: Bearer hk-do-not-tell"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02 " + SECRET.encode() + b"\r\n\r\n",
        f"WHAT-IS-THIS / HTTP/1.1\r\nHost: localhost\r\nBad Name : x\r\n{SECRET}\r\n\r\n".encode(),
        f"GET / HTTP/1.1\r\nHost: localhost\r\n{SECRET}{'x' * 20_000}\r\n\r\n".encode(),
        f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n{SECRET}\r\n\r\nx".encode(),
        f"GET / HTTP/1.1\r\nHost: localhost\r\n{SECRET}\r\nbroken\r\n\r\n".encode(),
        f"GET /healthz HTTP/1.1\r\n{SECRET}\r\n\r\n".encode(),
    ],
    ids=["garbage", "method", "long", "lengths", "line", "no host"],
)
async def test_what_is_no_http_is_refused_in_shape_and_without_an_echo(
    home: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as lines:
        async with gateway(home) as gw:
            head, _, body = (await raw_answer(gw, sent)).partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
    assert b"Server: hermes-gateway" in head
    error = json.loads(body)["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_request", None)
    for echoed in (b"hk-do-not-tell", b"xxxx", b"aiohttp", b"Python"):
        assert echoed not in head + body
    assert not [line for line in lines if line["log_level"] != "debug"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_body_that_cannot_be_unpacked_is_not_worth_a_traceback(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n"
    async with gateway(home) as gw:
        answer = await raw_answer(gw, head + b"not gzip.")
    assert answer.split()[1] == b"401"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc"], ids=["nothing", "half"])
async def test_whoever_does_not_ask_in_time_is_let_go(home: Path, sent: bytes) -> None:
    async with gateway(home, intervals=Intervals(idle=IdleTimes(head=0.05), shutdown=0.2)) as gw:
        assert await raw_answer(gw, sent) == b""


async def test_whoever_asked_in_time_may_stay(home: Path) -> None:
    async with gateway(home, intervals=Intervals(idle=IdleTimes(head=2), shutdown=0.2)) as gw:
        with hand_driven_loop() as passes:
            reader, writer = await connected(gw)
            for _ in range(2):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.split()[1] == b"200"
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.partition(b":")[2]))
                passes(4)
                for _ in range(5):  # whatever is due now
                    await asyncio.sleep(0)
            writer.close()
