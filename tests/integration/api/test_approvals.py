"""Approvals over HTTP: only a key with the scope `approve` decides, by steering, a message or a call; everything is recorded."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.tools.registry import Toolbox
from gateway.api.http.callers import CallerKey, Scope
from sessions import audit
from tests.app import give_tools
from tests.fakes.model_replies import call as tool_call
from tests.fakes.model_replies import calls
from tests.integration.api.serving import KEYS, OWNER, Gateway, gateway

MAIN = "/v1/deployments/dep_main"
CHATTER = CallerKey(
    name="talker",
    secret="talker-" + "t" * 32,
    scopes=frozenset({Scope.CHAT, Scope.READ}),
    deployments=frozenset({"dep_main"}),
)
APPROVER = replace(CHATTER, name="approver", secret="approver-" + "a" * 32, scopes=frozenset({Scope.APPROVE}))
SCRIPT = [calls(tool_call("process", {"action": "start", "command": "touch done"})), "it is done"]


def run_of(gw: Gateway, run_id: str) -> str:
    return f"{MAIN}/runs/{run_id}"


async def until(gw: Gateway, run_id: str, status: str) -> None:
    async with asyncio.timeout(60):
        while (await gw.ask("GET", run_of(gw, run_id)))[1]["status"] != status:
            await asyncio.sleep(0.01)


async def asked(gw: Gateway) -> str:
    """A run waits for the approval of a command."""
    give_tools(gw.app, Toolbox.of(["process"]).tools)
    _, sent, _ = await gw.ask("POST", f"{MAIN}/messages", {"content": "do it"}, CHATTER)
    await until(gw, sent["run_id"], "waiting_on_human")
    return sent["run_id"]


def done(home: Path) -> bool:
    return any(home.rglob("done"))


@pytest.mark.parametrize("key", [APPROVER, OWNER])
async def test_only_a_key_that_may_approves(home: Path, key: CallerKey) -> None:
    async with gateway(home, SCRIPT, keys=(*KEYS, CHATTER, APPROVER)) as gw:
        run_id = await asked(gw)
        steering = f"{run_of(gw, run_id)}/steering"
        for path, body in ((steering, {"response": "yes"}), (f"{MAIN}/messages", {"content": "yes"})):
            status, refused, _ = await gw.ask("POST", path, body, CHATTER)
            assert (status, refused["error"]["code"]) == (403, "forbidden")
            assert "scope approve" in refused["error"]["message"]
        assert (await gw.ask("GET", run_of(gw, run_id)))[1]["status"] == "waiting_on_human"
        assert not done(home)
        assert (await gw.ask("POST", steering, {"response": "yes"}, key))[0] == 202
        await until(gw, run_id, "completed")
        assert done(home)
        refused = [("key:talker", "approval.refused")] * 2
        assert await gw.database.read(audit.actions, "ask:1") == [*refused, (key.account, "approval.approved")]


async def test_a_denial_is_recorded_and_told_to_the_model(home: Path) -> None:
    async with gateway(home, SCRIPT, keys=(*KEYS, CHATTER)) as gw:
        run_id = await asked(gw)
        await gw.ask("POST", f"{run_of(gw, run_id)}/steering", {"response": "no, look first"})
        await until(gw, run_id, "completed")
        assert not done(home)
        assert "denied by owner: no, look first" in str(gw.model.calls[-1].messages[-1])
        assert await gw.database.read(audit.actions, "ask:1") == [("key:owner", "approval.denied")]


async def test_a_session_call_decides_only_with_the_scope(home: Path) -> None:
    talker: Any = replace(CHATTER, deployments=frozenset())
    script = [calls(tool_call("process", {"action": "start", "command": "touch done"})), "never"]
    async with gateway(home, script, keys=(*KEYS, talker)) as gw:
        give_tools(gw.app, Toolbox.of(["process"]).tools)
        question = await gw.chat("do it", "s", talker)
        assert "```\nprocess: touch done\n```\n1. approve\n2. deny" in question
        body = {"messages": [{"role": "user", "content": "yes"}]}
        status, refused, _ = await gw.ask("POST", "/v1/chat/completions", body, talker, X_Hermes_Session_Id="s")
        assert (status, refused["error"]["code"]) == (403, "forbidden")
        assert not done(home)


async def test_a_number_of_an_option_decides_and_the_key_is_recorded(home: Path) -> None:
    async with gateway(home, SCRIPT) as gw:
        give_tools(gw.app, Toolbox.of(["process"]).tools)
        await gw.chat("do it", "s")
        assert await gw.chat("1", "s") == "it is done"
        assert done(home)
        assert await gw.database.read(audit.actions, "ask:1") == [("key:owner", "approval.approved")]
