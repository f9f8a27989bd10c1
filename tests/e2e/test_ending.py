"""How long a daemon takes to end while a model still answers."""

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from gateway.api.http.server_state import Intervals
from gateway.chats.runner import SEND_OFF_SECONDS
from gateway.runs.worker import DRAIN_SECONDS
from tests.e2e.test_daemon import configure, running
from tests.fakes.model_replies import Reply
from tests.fakes.model_server import ModelServer
from tests.machine import free_port

PROMISED_SECONDS = 20


def test_the_parts_of_an_end_take_no_longer_than_promised_together():
    """Runs reach the end of their step, then calls over HTTP end or are cut off, then what is ready is sent to the chats."""
    assert DRAIN_SECONDS + 2 * Intervals().shutdown + SEND_OFF_SECONDS < PROMISED_SECONDS


@pytest.mark.chaos  # because it lasts as long as the end of a daemon may
async def test_a_stream_that_goes_on_for_minutes_holds_up_no_end_and_is_answered_by_the_next_start(tmp_path: Path):
    home, port = tmp_path / "home", free_port()
    home.mkdir(mode=0o700)

    async def a_second() -> None:
        await asyncio.sleep(1)

    endless = Reply(text="word " * 300, between=a_second)
    async with ModelServer([endless, endless], then="here I am") as model:
        chosen = {"base_url": model.url, "name": "big", "api_key": "k"}
        configure(home, model=chosen, api={"port": port})
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        async with running(home) as daemon, aiohttp.ClientSession() as http:
            question = {"stream": True, "messages": [{"role": "user", "content": "hello"}]}
            secret = {"Authorization": f"Bearer {(home / 'api_key').read_text().strip()}"}
            in_session = {**secret, "X-Hermes-Session-Id": "one"}
            async with http.post(url, json=question, headers=in_session) as first:
                await first.content.readany()
                async with http.post(url, json=question, headers=secret) as second:
                    await second.content.readany()
                    daemon.process.send_signal(signal.SIGTERM)
                    async with asyncio.timeout(PROMISED_SECONDS):
                        assert await daemon.ends() == 0
        async with running(home), asyncio.timeout(30):
            while model.count < 3:
                await asyncio.sleep(0.05)
        assert model.bodies[2]["messages"][-1]["content"].endswith("hello")
