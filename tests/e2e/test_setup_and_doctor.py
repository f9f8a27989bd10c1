"""`hermes setup` and `hermes doctor` in a real terminal, against servers at the wire: with good and with revoked tokens."""

import asyncio
import contextlib
import json
import os
import re
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import pexpect
import pytest
from click.testing import CliRunner, Result

from adapters.testing.slack import SlackServer
from adapters.testing.whatsapp import WhatsAppServer
from gateway.cli.doctor.command import ASYNC_CHECKS, CHECKS
from gateway.cli.doctor.remote_checks import why_unreachable
from gateway.cli.main import hermes as command
from sessions import workers
from sessions.clock import now_ms
from sessions.db import open_database
from sessions.workers import WorkerRow, WorkerState
from tests.fakes.model_server import ModelServer
from tests.fakes.telegram_server import TelegramServer
from tests.machine import free_port

HERMES = str(Path(sys.executable).with_name("hermes"))
ROOT = Path(__file__).parents[2]
WORDS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


def environ(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "HERMES_HOME": str(home), "NO_COLOR": "1", "TERM": "xterm", "HOME": str(home.parent), **more}


def hermes(home: Path, *arguments: str, **more: str) -> Result:
    return CliRunner().invoke(command, list(arguments), env={**environ(home, **more), "HERMES_DEBUG": None})


class AnsweringTerminal(pexpect.spawn):
    """Answers where its cursor is. prompt_toolkit asks before each prompt, and waits two seconds for the answer."""

    def read_nonblocking(self, size: int = 1, timeout: float | None = -1) -> str:
        read: str = super().read_nonblocking(size, timeout)
        if "\x1b[6n" in read:
            self.send("\x1b[1;1R")
        return read


class Dialogue:
    """`hermes setup` in a pseudo-terminal. It runs in a thread: the servers live in this loop."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self._child = AnsweringTerminal(
            HERMES, ["setup", *arguments], env=environ(home), encoding="utf-8", timeout=60, dimensions=(40, 160)
        )

    async def sees(self, *words: str) -> None:
        for each in words:
            await asyncio.to_thread(self._child.expect_exact, each)

    async def types(self, after: str, text: str) -> None:
        await self.sees(after)
        await asyncio.to_thread(self._child.expect, ":[ \x1b]")
        self._child.send(f"{text}\r")

    async def code(self) -> str:
        await asyncio.to_thread(self._child.expect, r"/start ([A-Z2-9]{8})")
        assert isinstance(self._child.match, re.Match)
        return str(self._child.match[1])

    async def ends(self) -> int:
        await asyncio.to_thread(self._child.expect, pexpect.EOF)
        await asyncio.to_thread(self._child.close)
        return int(self._child.exitstatus or 0)

    def press(self, keys: str) -> None:
        self._child.send(keys)


def prepared(home: Path, server: TelegramServer) -> None:
    """Only that the platform is somewhere else: everything else is what setup writes."""
    home.mkdir(mode=0o700)
    assert hermes(home, "config", "init").exit_code == 0
    for key, value in {"platforms.telegram.api_base": server.url, "api.port": str(free_port())}.items():
        done = hermes(home, "config", "set", key, value)
        assert done.exit_code == 0, done.output


async def test_from_nothing_to_an_owner(tmp_path: Path):
    home = tmp_path / "home"
    async with ModelServer(fast="ready") as model, TelegramServer() as server:
        prepared(home, server)
        talk = Dialogue(home)
        await talk.sees("Which model answers?", "another endpoint that speaks the OpenAI API")
        await talk.types("Number", "3")
        await talk.types("Address", model.url)
        await talk.types("Model", "fake-model")
        await talk.types("Key", "sk-of-the-model")
        await talk.sees("ok   fake-model at 127.0.0.1")
        await talk.sees("In which chats should it answer?", "Telegram")
        await talk.types("Numbers", "1")
        await talk.sees("BotFather")
        await talk.types("token", "123456:WRONG-token")
        await talk.sees("no   ")
        await talk.types("Try again?", "y")
        await talk.types("token", server.token)
        await talk.sees("ok   This is @hermes_bot", "privacy mode", "Open https://t.me/hermes_bot?start=")
        code = await talk.code()
        await talk.sees("█ ▄▄▄▄▄ █", "waiting")
        ann = server.user(7, "Ann")
        server.user_says(server.dm(ann), ann, f"/start {code}")
        await talk.sees("Hello Ann. You are the owner.")
        await talk.types("Number", "4")
        await talk.sees("hermes gateway install")
        assert await talk.ends() == 0
    text = (home / "config.yaml").read_text()
    assert "# " in text
    assert server.token not in text
    assert "sk-of-the-model" not in text
    secrets = (home / ".env").read_text()
    assert server.token in secrets
    assert "sk-of-the-model" in secrets
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    shown = hermes(home, "config", "show", "--json")
    values = {row["key"]: row["value"] for row in json.loads(shown.stdout)}
    assert values["session_reset.mode"] == "none"
    assert values["platforms.telegram.enabled"] is True


async def test_a_platform_that_calls_us_is_told_where_and_the_way_in_is_tested(tmp_path: Path):
    home, port = tmp_path / "home", free_port()
    home.mkdir(mode=0o700)
    assert hermes(home, "config", "init").exit_code == 0
    async with WhatsAppServer() as server:
        named = {"api_base": server.api_base, "phone_number_id": server.phone_number_id}
        platform = {f"platforms.whatsapp.{key}": value for key, value in named.items()}
        for key, value in {**platform, "api.port": str(port), "model.provider": "practice"}.items():
            assert hermes(home, "config", "set", key, value).exit_code == 0
        talk = Dialogue(home, "whatsapp")
        await talk.types("access token", server.token)
        await talk.types("phone number id", "")
        await talk.types("app secret", server.app_secret)
        await talk.types("verify token", server.verify_token)
        await talk.types("Public address", f"http://127.0.0.1:{port}")
        await talk.sees(
            "ok   This is ", "callback URL", f"http://127.0.0.1:{port}/webhooks/whatsapp reaches this gateway"
        )
        await talk.sees(f"Open https://wa.me/{server.number}?text=")
        code = await talk.code()
        server.calls_back(f"http://127.0.0.1:{port}/webhooks/whatsapp")
        ann = server.person("491700000001", "Ann")
        server.says(server.dm(ann), ann, f"/start {code}")
        await talk.sees("Hello Ann. You are the owner.", "hermes gateway run")
        assert await talk.ends() == 0


async def test_what_a_platform_would_meet_at_the_public_address(tmp_path: Path):
    assert await why_unreachable(f"http://127.0.0.1:{free_port()}/webhooks/slack") == "connection refused"
    async with ModelServer(fast="ready") as other:
        assert "something else answers there" in await why_unreachable(other.url)


async def test_leaving_keeps_what_was_confirmed_and_the_second_run_shows_it(tmp_path: Path):
    home = tmp_path / "home"
    async with ModelServer(fast="ready") as model, TelegramServer() as server:
        prepared(home, server)
        talk = Dialogue(home)
        await talk.types("Number", "3")
        await talk.types("Address", model.url)
        await talk.types("Model", "fake-model")
        await talk.types("Key", "")
        await talk.sees("ok   fake-model", "Numbers")
        talk.press("\x1b")
        await talk.sees("Which model answers?", "as it is: fake-model", "Number")
        talk.press("\x03")
        await talk.sees("What you have confirmed is saved.")
        assert await talk.ends() == 0
    assert "fake-model" in (home / "config.yaml").read_text()


async def test_what_does_not_work_is_not_saved(tmp_path: Path):
    home = tmp_path / "home"
    async with TelegramServer() as server:
        prepared(home, server)
        before = (home / "config.yaml").read_text()
        talk = Dialogue(home)
        await talk.sees("none yet: the built-in demo, offline, not a real AI   (Enter)")
        await talk.types("Number", "3")
        await talk.types("Address", f"http://127.0.0.1:{free_port()}/v1")
        await talk.types("Model", "fake-model")
        await talk.types("Key", "")
        await talk.sees("testing", "no   ")
        await talk.types("Choose again?", "y")
        await talk.types("Number", "3")
        await talk.types("Address", "")
        await talk.sees("[fake-model]")  # what was typed before is kept
        await talk.types("", "")
        await talk.types("Key", "")
        await talk.sees("testing", "no   ")
        await talk.types("Choose again?", "n")
        await talk.types("Numbers", "1")
        await talk.types("token", "123456:WRONG-token")
        await talk.sees("no   ")
        await talk.types("Try again?", server.token)
        await talk.sees("Type y or n.")
        await talk.types("Try again?", "n")
        await talk.sees("Nothing of this was saved.", "Number")
        talk.press("\x03")
        assert await talk.ends() == 0
    assert (home / "config.yaml").read_text() == before
    assert not (home / ".env").exists()


async def test_an_address_without_its_path_is_found(tmp_path: Path):
    home = tmp_path / "home"
    async with ModelServer(fast="ready", prefixes=("/v1",)) as model, TelegramServer() as server:
        prepared(home, server)
        talk = Dialogue(home)
        await talk.types("Number", "3")
        await talk.types("Address", model.url.removesuffix("/v1"))
        await talk.types("Model", "fake-model")
        await talk.types("Key", "")
        await talk.sees("ok   fake-model")
        talk.press("\x03")
        assert await talk.ends() == 0
    assert f"base_url: {model.url}" in (home / "config.yaml").read_text()


def test_files_of_another_user_are_given_back_and_not_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home = tmp_path / "home"
    assert hermes(home, "sessions", "import", "/dev/null").exit_code == 0
    usual = os.access
    denied = {home / "state.db"}
    monkeypatch.setattr(os, "access", lambda path, *more, **named: path not in denied and usual(path, *more, **named))
    found = codes(home)
    assert found["home.owner"]["remedy"].startswith("sudo chown -R ")
    assert "database.unusable" not in found


def test_a_database_of_another_version_is_not_to_be_restored(tmp_path: Path):
    home = tmp_path / "home"
    assert hermes(home, "sessions", "import", "/dev/null").exit_code == 0
    with contextlib.closing(sqlite3.connect(home / "state.db")) as db, db:
        db.execute("UPDATE alembic_version SET version_num = '0003'")
    found = codes(home)["database.version"]
    assert "has schema 0003" in found["what"]
    assert found["remedy"].startswith("Open it once with an earlier version")


async def test_what_the_environment_names_is_written_and_tested(tmp_path: Path):
    home = tmp_path / "home"
    async with ModelServer(fast="ready") as model, TelegramServer() as server:
        prepared(home, server)
        named = {
            "HERMES_MODEL__BASE_URL": model.url,
            "HERMES_MODEL__NAME": "fake-model",
            "TELEGRAM_BOT_TOKEN": server.token,
        }
        done = await asyncio.to_thread(hermes, home, "setup", "--non-interactive", **named)
        assert done.exit_code == 0, done.output
        assert "Telegram: @hermes_bot" in done.output
        assert server.token not in done.output
        server.revoked = True
        refused = await asyncio.to_thread(hermes, home, "setup", "--non-interactive", **named)
        assert refused.exit_code == 1
        assert "no   Telegram" in refused.output


def test_a_model_that_is_away_is_told_in_words_alone(tmp_path: Path):
    named = {"HERMES_MODEL__BASE_URL": f"http://127.0.0.1:{free_port()}/v1", "HERMES_MODEL__NAME": "m"}
    refused = hermes(tmp_path / "home", "setup", "--non-interactive", **named)
    assert refused.exit_code == 1
    assert refused.output.splitlines()[-1].startswith("  no   model: 127.0.0.1")
    assert "model.retried" not in refused.output


async def test_both_tokens_of_slack_are_tried(tmp_path: Path):
    home = tmp_path / "home"
    async with SlackServer() as server:
        named = {"SLACK_BOT_TOKEN": server.bot_token, "HERMES_PLATFORMS__SLACK__API_BASE": server.api_base}
        refused = await asyncio.to_thread(
            hermes, home, "setup", "--non-interactive", SLACK_APP_TOKEN="xapp-wrong", **named
        )
        assert refused.exit_code == 1, refused.output
        assert "no   Slack: Slack does not accept the app-level token." in refused.output
        assert "slack.unauthorized" in await asyncio.to_thread(codes, home)
        named["SLACK_APP_TOKEN"] = server.app_token
        assert (await asyncio.to_thread(hermes, home, "setup", "--non-interactive", **named)).exit_code == 0
        # What a running gateway knows, and no token shows.
        found = await asyncio.to_thread(codes, home)
        assert not found.keys() & {"slack.unauthorized", "slack.not_connected"}
        with contextlib.closing(open_database(home)) as database:
            seen = {"started_at": now_ms(), "last_seen": now_ms(), "state": WorkerState.READY}
            parts = {"slack": {"state": "lost", "words": "Switch Socket Mode on."}}
            who = {"name": "w", "owner": "w", "host": "h", "pid": 1, "version": "1", "role": "all"}
            database.write_now(workers.report, WorkerRow(**who, **seen, report={"parts": parts}))
        found = await asyncio.to_thread(codes, home)
        assert found["slack.not_connected"]["what"] == "Slack, says the running gateway: Switch Socket Mode on."


def test_questions_need_a_terminal(tmp_path: Path):
    refused = hermes(tmp_path / "home", "setup")
    assert refused.exit_code == 2
    assert "--non-interactive" in refused.stderr
    assert hermes(tmp_path / "home", "setup", "icq").exit_code == 2


# --- the doctor ------------------------------------------------------------------------------------------------------------------


def codes(home: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    told = json.loads(hermes(home, "doctor", "--json", *arguments).stdout)
    return {finding["code"]: finding for finding in told["findings"]}


def test_a_new_home_has_no_problem(tmp_path: Path):
    home = tmp_path / "home"
    assert hermes(home, "sessions", "import", "/dev/null").exit_code == 0
    (home / "config.yaml").write_text(f"api: {{port: {free_port()}}}\n")  # a gateway may run on this machine
    (home / "config.yaml").chmod(0o644)  # which the closed folder makes harmless
    done = hermes(home, "doctor")
    assert done.exit_code == 0, done.output
    assert f"{len(CHECKS) + len(ASYNC_CHECKS) + 1} checks, all is well." in done.stdout
    assert codes(home).keys() == {"gateway.not_running", "model.practice"}


async def test_a_revoked_token_and_a_model_that_is_away(tmp_path: Path):
    home = tmp_path / "home"
    async with TelegramServer() as server:
        prepared(home, server)
        for key, value in {
            "model.name": "m",
            "model.base_url": "http://127.0.0.1:9/v1",
            "platforms.telegram.token": server.token,
            "platforms.telegram.enabled": "true",
        }.items():
            assert hermes(home, "config", "set", key, value).exit_code == 0
        found = await asyncio.to_thread(codes, home)
        assert {"model.unreachable", "telegram.nobody"} <= found.keys()
        assert "telegram.privacy_mode" not in found
        assert hermes(home, "config", "set", "platforms.telegram.require_mention", "false").exit_code == 0
        assert "telegram.privacy_mode" in await asyncio.to_thread(codes, home)
        server.revoked = True
        found = await asyncio.to_thread(codes, home)
        assert found["telegram.unauthorized"]["remedy"] == "hermes setup telegram"
        assert server.token not in json.dumps(found)


async def test_a_model_that_can_hold_little_is_told(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    found: list[set[str]] = []
    for size in (4_096, 32_768):
        async with ModelServer(fast="ready", about_models={"max_model_len": size}) as model:
            for key, value in {"model.name": "fake-model", "model.base_url": model.url}.items():
                assert hermes(home, "config", "set", key, value).exit_code == 0
            found.append(set(await asyncio.to_thread(codes, home)))
    assert ["model.small_window" in each for each in found] == [True, False]


def test_what_can_be_mended_is_mended(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    # Another gateway of this machine may have the usual port.
    (home / "config.yaml").write_text(f"api: {{port: {free_port()}}}\n")
    (home / "config.yaml").chmod(0o600)
    assert hermes(home, "sessions", "import", "/dev/null").exit_code == 0
    (home / "api_key").write_text("x" * 40)
    home.chmod(0o755)
    (home / "api_key").chmod(0o644)
    found = codes(home)
    assert found["home.permissions"]["fixable"]
    assert "config.warning" not in found  # of the same
    assert "--fix` fixes 2 of them" in hermes(home, "doctor").stdout
    assert "it holds conversations and secrets." in hermes(home, "doctor", "--explain").stdout
    mended = hermes(home, "doctor", "--fix")
    assert mended.exit_code == 0, mended.output
    assert len(re.findall(r"^  fixed ", mended.stdout, re.MULTILINE)) == 2
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "api_key").stat().st_mode & 0o777 == 0o600


def test_bad_configuration_a_damaged_database_and_what_was_not_delivered(tmp_path: Path):
    home = tmp_path / "home"
    assert hermes(home, "sessions", "import", "/dev/null").exit_code == 0
    (home / "config.yaml").write_text("session_reset: {mode: dayly}\n")
    (home / "config.yaml").chmod(0o600)
    with sqlite3.connect(home / "state.db") as conn:
        conn.execute(
            "INSERT INTO outbox (dedup_key, platform, chat, address, session_key, body, state, due_at, created_at)"
            """ VALUES ('d', 'telegram', '7', '["telegram", "dm", "7", null, null]', '', '{"text": "x"}', 'dead', 0, 0)"""
        )
    conn.close()
    found = codes(home)
    assert "did you mean daily?" in found["config.invalid"]["remedy"]
    assert "outbox.undelivered" in found
    with (home / "state.db").open("r+b") as file:
        file.seek(40_000)
        file.write(os.urandom(60_000))
    assert codes(home).keys() & {"database.damaged", "database.unusable"}


def test_messages_that_wait_and_a_clock_that_was_set_back(tmp_path: Path):
    home = tmp_path / "home"
    assert hermes(home, "sessions", "import", "/dev/null").exit_code == 0
    tomorrow = round(time.time() * 1000) + 86_400_000
    with sqlite3.connect(home / "state.db") as conn:
        conn.execute(
            "INSERT INTO outbox (dedup_key, platform, chat, address, session_key, body, state, due_at, created_at)"
            """ VALUES ('d', 'telegram', '7', '["telegram", "dm", "7", null, null]', '', '{"text": "x"}', 'pending', 0, 0)"""
        )
        conn.execute(
            "INSERT INTO inbox (dedup_key, session_key, kind, mode, body, created_at) VALUES ('d', 'k', 'command', 'fold', '', ?)",
            (tomorrow,),
        )
    conn.close()
    found = codes(home)
    assert found["outbox.waiting"]["what"].startswith("1 message still to be sent")
    assert "in the future" in found["clock.set_back"]["what"]
    assert "1 message to telegram still to be sent." in hermes(home, "outbox", "list").stdout


@pytest.mark.parametrize("module", ["checks", "remote_checks", "command"])
def test_every_finding_has_its_place_in_the_runbook(module: str):
    source = (ROOT / "gateway" / "cli" / "doctor" / f"{module}.py").read_text()
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    written = re.findall(r'(?:problem|warning|note)\(\s*f?"([a-z_{}]+\.[a-z_]+)"', source)
    assert written
    for code in written:
        anchor = code.replace("{name}", "telegram").replace(".", "-").replace("_", "-")
        assert f'<a id="{anchor}"></a>' in runbook, f"{code} has no place in docs/runbook.md"
