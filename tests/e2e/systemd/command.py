"""Has the agent of the running service write a shell script and run it, by a model of our own. Prints what the command has printed.

command.py HOME SCRIPT
"""

import asyncio
import sys
from pathlib import Path

import aiohttp
import yaml

from tests.fakes.model_replies import call, calls
from tests.fakes.model_server import ModelServer


async def main(home: Path, script: str) -> None:
    write = call("files", {"action": "write", "path": "tried.sh", "content": script}, id="a")
    run = call("process", {"action": "start", "command": "sh tried.sh"}, id="b")
    async with ModelServer([calls(write), calls(run), "done"]) as model:
        config = {
            "model": {"base_url": model.url, "name": "m", "api_key": "k"},
            "agents": {"main": {"tools": ["files", "process"], "approve": ["process: sh *"]}},
        }
        (home / "config.yaml").write_text(yaml.safe_dump(config))
        restart = await asyncio.create_subprocess_exec("systemctl", "restart", "hermes-gateway")
        await restart.wait()
        async with aiohttp.ClientSession(
            headers={
                "Authorization": f"Bearer {(home / 'api_key').read_text().strip()}",
                "X-Hermes-Session-Id": "systemd",
            }
        ) as client:
            body = {"model": "hermes", "messages": [{"role": "user", "content": "run it"}]}
            url = "http://127.0.0.1:8642/v1/chat/completions"
            async with client.post(url, json=body) as answer:
                await answer.read()
        for message in model.calls[-1].messages:
            if message["role"] == "tool":
                sys.stdout.write(f"{message['content']}\n")


asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]).read_text()))
