"""A client at one gateway of a team, and its run at another."""

import asyncio
import time
from pathlib import Path
from typing import Any

from gateway.dispatch.procrastinate import ProcrastinateDispatch
from sessions import runs
from sessions.db import open_database
from sessions.topics import Topic, Touch
from tests.fakes.model_replies import Reply
from tests.integration.api.serving import CHAT, Gateway, client_of, gateway, one_message
from tests.integration.api.test_deployments import events
from tests.integration.runs.test_statements import counted

MAIN = "/v1/deployments/dep_main"


async def connected(gw: Gateway) -> None:
    assert gw.database.bus is not None
    async with asyncio.timeout(10):
        while gw.database.bus.is_alone or gw.database.bus.steady_since is None:
            await asyncio.sleep(0.02)


async def streamed(gw: Gateway, text: str) -> list[str]:
    stream = await client_of(gw, default_headers={"X-Hermes-Session-Id": "s"}).chat.completions.create(
        model="hermes", messages=one_message(text), stream=True
    )
    return [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]


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
        await connected(b)
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
        assert "".join(await streamed(a, "again")) == "third"
        assert (a.model.count, c.model.count) == (0, 0)


async def test_words_that_were_lost_on_the_way_are_there_in_the_end(home: Path, postgres_url: str) -> None:
    homes = [home / name for name in "ab"]
    for each in homes:
        each.mkdir()
    steps: list[Any] = []

    async def between() -> None:
        if steps:
            await steps.pop(0)()

    async def nothing() -> None: ...

    words = Reply(text="one two three four", chunks=("one", " two", " three", " four"), between=between)
    async with (
        gateway(homes[0], [], database_url=postgres_url, works=False) as a,
        gateway(homes[1], [words], database_url=postgres_url) as b,
    ):
        await connected(b)
        await connected(a)
        heard: list[str] = []
        a.app.live.listen("*", lambda event: heard.append(event.text) if event.kind == "token" else None)

        async def until_first() -> None:
            async with asyncio.timeout(10):
                while "one" not in heard:
                    await asyncio.sleep(0.005)

        async def lose() -> None:
            bus = b.database.bus
            assert bus is not None
            async with asyncio.timeout(10):
                while not bus.take_waiting():  # "two" was packed, and its connection broke
                    await asyncio.sleep(0.002)

        steps += [nothing, until_first, lose]
        pieces = await streamed(a, "count")
        assert "".join(pieces) == "one two three four"
        assert pieces[-2:] == [" two three four", ""]  # nothing twice


async def test_a_held_run_is_asked_about_by_nobody_and_its_stop_is_found_though_no_word_of_it_came(
    home: Path, postgres_url: str, monkeypatch
) -> None:
    monkeypatch.setattr(ProcrastinateDispatch, "poll_seconds", 3_600)
    reached, never = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await never.wait()

    async with gateway(home, [Reply(text="late", before=hold)], database_url=postgres_url) as gw:
        held = asyncio.create_task(gw.ask("POST", "/v1/chat/completions", CHAT, X_Hermes_Session_Id="s"))
        await reached.wait()
        bus = gw.database.bus
        assert bus is not None
        with counted() as found:
            bus.hear(frozenset({Touch(Topic.LOOK, "")}))
            await asyncio.sleep(0.2)
        assert [text for text in found if "FROM runs" in text] == []
        elsewhere = open_database(home, postgres_url)
        assert elsewhere.bus is not None
        (run,) = await elsewhere.read(runs.latest, 5)
        await elsewhere.write(runs.stop, run.id, gw.app.clock())
        assert elsewhere.bus.take_waiting()  # and nobody is told
        elsewhere.close()
        await gw.app.dispatch.poll()
        async with asyncio.timeout(1):
            assert (await held)[0] == 200
