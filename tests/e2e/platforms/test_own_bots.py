"""The fakes serve other people's bots: the page about it is run as it stands, and every fake holds a conversation."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.testing.conversation import Conversation
from adapters.testing.telegram import TelegramServer
from tests.e2e.platforms.driver import Driver
from tests.e2e.platforms.scene import scene
from tests.e2e.telegram import daemon as telegram

PAGE = Path(__file__).parents[3] / "docs/how-to/test-your-bot.md"


async def test_the_page_is_true() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    handlers: list[Any] = []
    for block in blocks:
        exec(block, names)
    make: Callable[..., Any] = names["my_bot"]

    def kept(server: Any) -> Any:
        handlers.append(make(server))
        return handlers[-1]

    names["my_bot"] = kept
    try:
        await names["test_my_bot"]()
    finally:
        for handler in handlers:
            with contextlib.suppress(Exception):
                await handler.close_async()


def test_the_script_is_ten_lines_long() -> None:
    *_, script = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len([line for line in script.splitlines() if line.strip()]) <= 10


async def test_every_fake_holds_a_conversation(home: Path, driver: Driver) -> None:
    async with scene(home, driver):
        ann = Conversation(driver.server, driver.owner)
        (answer,) = await ann.says("hello")
        assert "practice model" in answer
        (question,) = await ann.says("ask me something")
        assert "colour" in question
        assert any("Red" in said for said in await ann.taps("Red"))


async def test_telegrams_fake_holds_one_too(home: Path) -> None:
    async with TelegramServer() as server, telegram.daemon(home, server):
        ann = Conversation(server, server.person(7, "Ann"))
        (answer,) = await ann.says("hello")
        assert "practice model" in answer
        await ann.says("ask me something")
        assert any("Red" in said for said in await ann.taps("Red"))


async def test_an_answer_that_does_not_come_is_told(home: Path, driver: Driver) -> None:
    async with driver.server:
        ann = Conversation(driver.server, driver.owner, timeout=0.3)
        with pytest.raises(AssertionError, match="1 answers were expected"):
            await ann.says("hello")
