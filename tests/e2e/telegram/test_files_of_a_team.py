"""Files of a team: one gateway is connected and takes calls, another one works, and each has a home of its own."""

import asyncio
import base64
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from gateway.app import open_app, running
from gateway.attachments.inbox_files import INBOX
from gateway.chats.runner import PlatformState
from gateway.config.reading import load
from gateway.daemon import Role, Serving, serving
from tests.e2e.telegram.daemon import of_a_team, write_config
from tests.fakes.model_replies import call, calls
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer

KEY = "k" * 40
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


def files(action: str, path: str, **more: str) -> Any:
    return calls(call("files", {"action": action, "path": path, **more}))


async def test_what_one_takes_in_another_works_with_and_the_first_sends(home: Path, postgres_url: str):
    script = [
        files("read", "inbox/report.txt"),
        files("write", "out/report.txt", content="figures, mended"),
        files("send", "out/report.txt"),
        calls(call("skill", {"action": "save", "name": "mend", "content": "Mending figures"})),
        "It is mended.",
        files("read", "inbox/data.csv"),
        "I see both.",
    ]
    async with TelegramServer() as server, ModelServer(script) as model, AsyncExitStack() as stack:
        ann = server.user(7, "Ann")
        dm = server.dm(ann)
        sections = of_a_team(
            model,
            postgres_url,
            api={"port": 0, "keys": [{"name": "me", "key": KEY, "scopes": ["chat"], "deployments": ["dep_main"]}]},
        )

        async def start(name: str, role: Role) -> Serving:
            (home / name).mkdir()
            write_config(home / name, server, sections=sections)
            app = await stack.enter_async_context(
                open_app(home / name, load(home / name, {}), serves=role != "ingress")
            )
            served = await stack.enter_async_context(serving(app, role=role))
            await stack.enter_async_context(running(app))
            return served

        a, b = await start("a", "ingress"), await start("b", "worker")
        async with asyncio.timeout(30):
            while a.chats.states()["telegram"]["state"] != PlatformState.CONNECTED:
                await asyncio.sleep(0.02)

        server.user_says(dm, ann, "mend this", document=("report.txt", b"figures", "text/plain"))
        assert (await server.answered(dm.id, 2, timeout=30))[-1] == "It is mended."
        (sent,) = server.called("sendDocument")
        assert (sent["document"].filename, bytes(sent["document"])) == ("report.txt", b"figures, mended")
        assert b.chats.states()["telegram"]["state"] == PlatformState.STANDBY
        results = [each["content"] for each in model.calls[-1].messages if each["role"] == "tool"]
        assert "figures" in results[0]
        assert a.app.files is not None
        await a.app.files.bring("workspace", "agent:main")
        await a.app.files.bring_skills()
        workspace = a.app.workspace("agent:main")
        assert (workspace / INBOX / "report.txt").read_bytes() == b"figures"
        assert (workspace / "out" / "report.txt").read_text() == "figures, mended"
        assert (a.app.skills / "mend" / "SKILL.md").read_text() == "Mending figures\n"

        body = {
            "content": "what is in these?",
            "attachments": [
                {"name": "cat.png", "type": "image/png", "data": base64.b64encode(PNG).decode()},
                {"name": "data.csv", "type": "text/csv", "data": base64.b64encode(b"a,b").decode()},
            ],
        }
        headers = {"Authorization": f"Bearer {KEY}"}
        async with aiohttp.ClientSession(headers=headers) as http, asyncio.timeout(30):
            async with http.post(f"{a.url}/v1/deployments/dep_main/messages", json=body) as answer:
                assert answer.status == 202, await answer.text()
                run_id = (await answer.json())["run_id"]
            status = ""
            while status != "completed":
                async with http.get(f"{a.url}/v1/deployments/dep_main/runs/{run_id}") as answer:
                    status = (await answer.json())["status"]
                await asyncio.sleep(0.02)
        said = model.calls[-1].messages
        shown = [part for each in said if isinstance(each["content"], list) for part in each["content"]]
        pictures = [part["image_url"]["url"] for part in shown if part["type"] == "image_url"]
        assert pictures == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"]
        assert "a,b" in said[-1]["content"]
        assert server.violations == []
