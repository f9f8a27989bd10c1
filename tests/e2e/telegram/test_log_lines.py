"""What an operator reads of a message."""

import asyncio
from pathlib import Path

from structlog.testing import capture_logs

from tests.e2e.telegram.daemon import scene


async def test_a_finished_run_says_chat_model_duration_and_tokens(home: Path) -> None:
    async with scene(home) as s:
        with capture_logs() as lines:
            await s.answer_to("hello")
            async with asyncio.timeout(5):
                while not (found := [line for line in lines if line["event"] == "run.finished"]):
                    await asyncio.sleep(0.01)

    (line,) = found
    assert line["chat"] == "telegram:7"
    assert line["model"] == "practice"
    assert line["seconds"] >= 0
    assert min(line["input_tokens"], line["output_tokens"]) > 0
    assert "hello" not in str(lines)
