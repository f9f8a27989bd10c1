"""A client at one gateway of a team, and its run at another."""

import asyncio
import time
from pathlib import Path

from tests.fakes.model_replies import Reply
from tests.integration.api.serving import client_of, gateway, one_message
from tests.integration.api.test_deployments import events

MAIN = "/v1/deployments/dep_main"


async def test_events_words_and_answers_of_a_run_elsewhere(home: Path, postgres_url: str) -> None:
    homes = [home / name for name in "abc"]
    for each in homes:
        each.mkdir()
    words = Reply(text="one two three", chunks=("one ", "two ", "three"))
    script = [words, "second", "third"]
    async with (
        gateway(homes[0], [], database_url=postgres_url, works=False) as a,
        gateway(homes[1], script, database_url=postgres_url) as b,
        gateway(homes[2], [], database_url=postgres_url, works=False) as c,
    ):
        assert b.database.bus is not None
        async with asyncio.timeout(10):
            while b.database.bus.is_alone or b.database.bus.steady_since is None:
                await asyncio.sleep(0.02)
        async with events(a, "dep_main") as here:
            status, *_ = await a.ask("POST", f"{MAIN}/messages", {"content": "hi"})
            assert status == 202
            got = await here.until("run_status", status="completed")
        kinds = [kind for _, kind, _ in got]
        assert "".join(data["text"] for _, kind, data in got if kind == "token") == "one two three"
        assert kinds.index("token") < len(kinds) - 1 - kinds[::-1].index("message")  # words come before the whole
        stored = [each for each in got if each[1] != "token"]
        async with events(c, "dep_main", Last_Event_ID=str(stored[0][0])) as there:
            assert [await there.next() for _ in stored[1:]] == stored[1:]
        began = time.monotonic()
        assert await a.chat("and now?", session="s") == "second"
        assert time.monotonic() - began < 5  # nobody waits for the next look
        stream = await client_of(a, default_headers={"X-Hermes-Session-Id": "s"}).chat.completions.create(
            model="hermes", messages=one_message("again"), stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(pieces) == "third"
        assert (a.model.count, c.model.count) == (0, 0)
