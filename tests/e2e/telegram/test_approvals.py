"""An approval on Telegram: asked, the daemon killed with -9, approved by button a week later, and done once with what was shown."""

from pathlib import Path
from typing import Any

from gateway.texts import say
from sessions import audit
from sessions.clock import now_ms
from tests.e2e.telegram.daemon import daemon, process, settled
from tests.e2e.telegram.test_killed_in_time import rows
from tests.fakes.model_replies import call, calls
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer

WEEK = 7 * 24 * 3_600_000
COMMAND = "echo paid >> ledger"


def sections(model: ModelServer) -> dict[str, Any]:
    return {
        "model": {"base_url": model.url, "name": "big", "api_key": "k"},
        "agents": {"main": {"tools": ["process"]}},
        "session_reset": {"mode": "none"},
    }


async def test_it_is_done_once_a_week_after_the_daemon_was_killed(home: Path) -> None:
    script = [calls(call("process", {"action": "start", "command": COMMAND})), "It is paid."]
    async with TelegramServer() as server, ModelServer(script) as model:
        ann, bob = server.user(7, "Ann"), server.user(9, "Bob")
        group = server.group(-1001)
        more = {"sections": sections(model), "allowed_chats": ["-1001"]}
        first = await process(home, server, **more)
        server.user_says(group, bob, "@hermes_bot pay it")
        await server.until(lambda: any(message.buttons for message in server.chat(group.id)), timeout=60)
        card = next(message for message in server.chat(group.id) if message.buttons)
        assert f"process: {COMMAND}" in card.text
        await server.until(lambda: ("sent",) in rows(home, "SELECT state FROM outbox WHERE run_id IS NOT NULL"))
        first.kill()
        await first.wait()

        async with daemon(home, server, clock=lambda: now_ms() + WEEK, **more) as (app, _):
            await server.until(lambda: app.chats.states()["telegram"]["state"] == "connected", timeout=60)
            approve = card.buttons[0]
            tapped = server.taps(bob, card, approve)  # he is only present
            await server.until(lambda: server.taps_open[tapped] == say("people.not_allowed"))
            assert card.buttons
            server.taps(ann, card, approve)
            late = server.taps(ann, card, approve)
            await server.until(lambda: any("It is paid." in said for said in server.answers(group.id)), timeout=60)
            ledger = next(home.rglob("ledger"))
            await server.until(lambda: card.buttons == [])
            await server.until(lambda: (server.taps_open[late] or "").startswith("Ann already decided this"))
            await settled(app.database)
            assert not any(
                "decided this" in said or said == say("people.not_allowed") for said in server.answers(group.id)
            )
            decisions = await app.database.read(audit.actions, "ask:1")
            assert [action for _, action in decisions] == ["approval.refused", "approval.approved", "approval.refused"]
            assert ledger.read_text() == "paid\n"
        assert "exit code 0" in str(model.calls[-1].messages[-1])
