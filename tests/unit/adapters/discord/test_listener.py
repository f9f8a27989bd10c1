"""The connection to Discord's gateway, against a server at the wire."""

import asyncio

from adapters.discord.listener import Listener
from adapters.discord.rest import point_at
from adapters.testing.discord import DiscordServer


async def test_nothing_of_it_goes_on_after_its_end() -> None:
    async with DiscordServer() as server:
        point_at(server.api_base, server.gateway_url)
        listener = Listener(server.token, alive=lambda: None)
        before = asyncio.all_tasks()
        running = asyncio.create_task(listener.run())
        await server.until(lambda: any("_delay_ready" in str(task.get_coro()) for task in asyncio.all_tasks()))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        left = [task for task in asyncio.all_tasks() - before if "_delay_ready" in str(task.get_coro())]
        await asyncio.wait(left or {asyncio.create_task(asyncio.sleep(0))}, timeout=0.5)
        assert [task.exception() for task in left if task.done()] == [None] * len(left)
