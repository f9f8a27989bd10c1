"""`hermes gateway run` as a process: what it says, what it refuses, what it takes over, and how it ends."""

import asyncio
import json
import os
import pty
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pexpect
import pytest
import yaml

from tests.e2e.telegram.daemon import save, write_config
from tests.fakes.telegram_server import TelegramServer
from tests.machine import free_port

HERMES = str(Path(sys.executable).with_name("hermes"))
SECRET = "a-secret-of-ours"
DEAD_LETTER = (
    "INSERT INTO outbox (dedup_key, platform, chat, address, session_key, body, state, due_at, created_at, last_error)"
    " VALUES ('d', 'telegram', '7', :address, '', '{\"text\": \"late news\"}', 'dead', 0, 0, 'the chat was gone')"
)


def environ(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "HERMES_HOME": str(home), "NO_COLOR": "1"}


def configure(home: Path, **sections: Any) -> None:
    usual = {"model": {"provider": "practice"}, "api": {"port": 0}}
    save(home / "config.yaml", yaml.safe_dump({**usual, **sections}))


class Daemon:
    """The process, and everything that it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""
        assert process.stdout is not None
        self._out = process.stdout

    async def says(self, *words: str) -> str:
        """Returns all it has said, once that holds all these words."""
        async with asyncio.timeout(60):
            while not all(word in self.said for word in words):
                more = await self._out.read(65_536)
                assert more, f"it ended without saying {words}: {self.said}"
                self.said += more.decode()
        return self.said

    async def ends(self) -> int:
        async with asyncio.timeout(60):
            self.said += (await self._out.read()).decode()
            return await self.process.wait()


async def start(home: Path) -> Daemon:
    process = await asyncio.create_subprocess_exec(
        HERMES,
        "gateway",
        "run",
        env=environ(home),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    return Daemon(process)


@asynccontextmanager
async def running(home: Path) -> AsyncGenerator[Daemon]:
    daemon = await start(home)
    try:
        await daemon.says("daemon.started")
        yield daemon
    finally:
        if daemon.process.returncode is None:
            daemon.process.kill()
            await daemon.process.wait()


async def hermes(home: Path, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        HERMES,
        *arguments,
        env=environ(home),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_a_home_that_others_can_look_into_is_said(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    configure(home)
    async with running(home) as daemon:
        said = await daemon.says("is running")
        assert f"others on this machine can look into it\n        chmod 700 {home}" in said


async def test_a_key_file_that_can_be_guessed_is_told_with_what_to_do(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    configure(home)
    save(home / "api_key", "short-key\n")
    async with running(home) as daemon:
        said = await daemon.says("api.short_key")
        (line,) = [line for line in said.splitlines() if "api.short_key" in line]
    assert "characters=9" in line
    assert f"delete {home / 'api_key'} and start again: a new key is made" in line
    assert "short-key" not in said


async def refused(home: Path) -> tuple[int, str]:
    daemon = await start(home)
    code = await daemon.ends()
    assert "Traceback" not in daemon.said
    return code, daemon.said


async def test_its_life_start_screen_key_second_start_reload_and_clean_end(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    configure(home)
    async with running(home) as daemon:
        screen = await daemon.says("is running", "Home", "Model    practice", "API      http://127.0.0.1:", "none yet")
        assert screen.index("Home") < screen.index("Model") < screen.index("API ") < screen.index("Chats")
        key = (home / "api_key").read_text().strip()
        assert (home / "api_key").stat().st_mode & 0o777 == 0o600
        assert key not in screen

        code, said = await refused(home)
        assert code == 1
        assert f"already runs on {home} (process {daemon.process.pid})" in said

        configure(home, session_reset={"mode": "dayly"})
        await daemon.says("config.refused", "did you mean daily?")
        configure(home, session_reset={"mode": "daily"})
        await daemon.says("config.reloaded", "session_reset.mode")
        daemon.said = ""
        daemon.process.send_signal(1)
        await daemon.says("config.reloaded")

        daemon.process.terminate()
        assert await daemon.ends() == 0
        assert "daemon.stopped" in daemon.said
        assert key not in daemon.said
        assert "Traceback" not in daemon.said


async def test_in_the_journal_nobody_is_told_what_to_try(home: Path, tmp_path: Path):
    configure(home)
    with (tmp_path / "journal").open("w+b") as journal:
        stat = os.fstat(journal.fileno())
        where = {**environ(home), "JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"}
        command = [HERMES, "gateway", "run"]
        process = await asyncio.create_subprocess_exec(*command, env=where, stdout=journal, stderr=journal)
        async with asyncio.timeout(60):
            while "daemon.started" not in (said := (tmp_path / "journal").read_text()):
                await asyncio.sleep(0.02)
        process.terminate()
        await process.wait()
    assert "Chats    none yet" in said
    assert "Try now" not in said


async def test_a_port_that_is_taken_is_told_before_anything_else_begins(home: Path):
    async with TelegramServer() as server:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            write_config(home, server, sections={"api": {"port": port}})
            code, said = await refused(home)
        assert code == 2
        assert f"Port {port} is taken by" in said
        assert server.calls == []


async def test_a_bad_configuration_starts_nothing_and_lists_every_problem(new_home: Path):
    configure(new_home, session_reset={"mode": "dayly", "idle_minuts": 3})
    code, said = await refused(new_home)
    assert code == 2
    for expected in ("did you mean daily?", "did you mean idle_minutes?", "2 problems", "was not started"):
        assert expected in said
    assert not (new_home / "state.db").exists()


async def test_people_are_let_in_and_dead_letters_sent_while_it_runs(home: Path):
    async with TelegramServer() as server:
        write_config(home, server, allowed_users=["7"])
        ann, bob = server.user(7, "Ann"), server.user(8, "Bob")
        mine, his = server.dm(ann), server.dm(bob)
        async with running(home):
            server.user_says(his, bob, "hello")
            (told,) = await server.answered(his.id)
            code = re.findall(r"[A-Z2-9]{4}-[A-Z2-9]{4}", told)[0]
            listed = (await hermes(home, "pair", "list"))[1]
            assert "telegram:8  Bob  waits" in listed
            assert code not in listed
            assert (await hermes(home, "pair", "approve", "AAAA-AAAA"))[0] == 1
            assert (await hermes(home, "pair", "approve", code.lower()))[0] == 0
            assert "You are in" in (await server.answered(his.id, 2))[1]
            server.user_says(his, bob, "hello")
            assert "practice" in (await server.answered(his.id, 3))[2]
            assert (await hermes(home, "pair", "revoke", "telegram:8"))[0] == 0

            dead_letter(home)
            _, listed = await hermes(home, "outbox", "list")
            number = re.findall(r"^(\d+)  telegram 7 .*the chat was gone$", listed, re.MULTILINE)[0]
            assert (await hermes(home, "outbox", "send", "999"))[0] == 1
            assert (await hermes(home, "outbox", "send", number))[0] == 0
            assert await server.answered(mine.id) == ["late news"]
            await asyncio.wait_for(_all_sent(home), 60)
            server.user_says(his, bob, "and now")
            await server.until(lambda: len(server.answers(his.id)) == 4)
            assert "hermes pair approve" in server.answers(his.id)[3]
        assert server.violations == []


async def _all_sent(home: Path) -> None:
    while "No undelivered messages" not in (await hermes(home, "outbox", "list"))[1]:
        pass


def dead_letter(home: Path) -> None:
    from sqlalchemy import text

    from sessions.db import open_database
    from sessions.keys import Address, ChatKind, Platform
    from sessions.records import Route

    address = Route(address=Address(platform=Platform.TELEGRAM, kind=ChatKind.DM, chat_id="7")).to_json()
    database = open_database(home)
    database.write_now(lambda conn: conn.execute(text(DEAD_LETTER), {"address": address}).rowcount)
    database.close()


async def test_telegram_may_call_instead_of_being_asked(home: Path):
    async with TelegramServer() as server:
        port = free_port()
        api = {"port": port, "public_url": f"http://127.0.0.1:{port}"}
        write_config(home, server, sections={"api": api}, mode="webhook", webhook_secret=SECRET)
        ann = server.user(7, "Ann")
        dm = server.dm(ann)
        async with running(home):
            await server.until(lambda: server.webhook["url"])
            assert server.webhook["url"] == f"http://127.0.0.1:{port}/webhooks/telegram"
            server.user_says(dm, ann, "hello")
            await server.push()
            assert "practice" in (await server.answered(dm.id))[0]
            server.user_says(dm, ann, "forged")
            headers, body = server.webhook_request()
            async with aiohttp.ClientSession() as http:
                for wrong in ("", "wrong", SECRET + "x"):
                    headers["X-Telegram-Bot-Api-Secret-Token"] = wrong
                    async with http.post(server.webhook["url"], data=body, headers=headers) as answer:
                        assert answer.status == 401
        assert len(server.answers(dm.id)) == 1
        assert server.violations == []


def on_a_terminal(home: Path) -> "pexpect.spawn[str]":
    env = {**environ(home), "TERM": "dumb", "HERMES_API__PORT": "0", "HERMES_MODEL__PROVIDER": "practice"}
    env |= {"SSH_CONNECTION": "198.51.100.7 52314 203.0.113.5 22", "USER": "ann"}
    return pexpect.spawn(HERMES, ["gateway"], env=env, encoding="utf-8", timeout=60, dimensions=(40, 160))


def test_on_a_terminal_typing_gets_an_answer_and_two_times_ctrl_c_ends_it(tmp_path: Path):
    home = tmp_path / "new"
    child = on_a_terminal(home)
    for expected in (
        "is running",
        r"Home +\S+ +new, only you can read it",
        "Model +practice +built-in demo, offline, not a real AI",
        r"API +http://127\.0\.0\.1:\d+ +key in",
        "Chats +none yet",
        "Try now",
        "just type below",
        r"from your computer +ssh -L (\d+):127\.0\.0\.1:\1 ann@203\.0\.113\.5",
        "twice stops hermes. Nothing is lost.",
        "you ›",
    ):
        child.expect(expected)
        assert "daemon.started" not in (child.before or "")
    child.send("hello\r")
    child.expect("practice model")
    while child.sendcontrol("c") and child.expect([pexpect.EOF, "Ctrl-C once more leaves", "Stopped"]):
        pass  # twice, and once more each time that the machine was too slow for that to be twice
    said = child.before or ""
    assert re.search(r"Session (\S+)\s+Resume  \S*hermes -r \1", said)
    child.wait()
    assert not (home / "gateway.pid").exists()
    assert child.exitstatus == 0
    assert (home.stat().st_mode & 0o777) == 0o700


def test_it_ends_with_the_terminal_that_it_was_started_on(tmp_path: Path):
    home = tmp_path / "home"
    settings = {"TERM": "dumb", "HERMES_API__PORT": "0", "HERMES_MODEL__PROVIDER": "practice"}
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it is ignored where the tests were started with nohup
        os.execve(HERMES, [HERMES, "gateway"], {**environ(home), **settings})
    said = b""
    while "you ›".encode() not in said:
        said += os.read(terminal, 65_536)
    os.close(terminal)  # as a window that is closed
    _, status = os.waitpid(pid, 0)
    assert status == 0
    assert not (home / "gateway.pid").exists()


async def test_a_terminal_shows_only_its_own_conversation_and_its_failure_ends_nothing(tmp_path: Path):
    home = tmp_path / "home"
    child = on_a_terminal(home)
    await asyncio.to_thread(child.expect, r"API +(http://127\.0\.0\.1:\d+)")
    url = str(child.match[1])
    await asyncio.to_thread(child.expect, "you ›")
    assert "practice model" in await asked(home, url, "from elsewhere")
    child.send("hello\r")
    await asyncio.to_thread(child.expect, "> hello|▌ hello")
    assert "elsewhere" not in (child.before or "")
    child.kill(signal.SIGTERM)
    await asyncio.to_thread(child.expect, pexpect.EOF)

    (home / "history").unlink()
    (home / "history").symlink_to(tmp_path / "missing" / "history")  # the prompt cannot be built
    child = on_a_terminal(home)
    await asyncio.to_thread(child.expect, r"API +(http://127\.0\.0\.1:\d+)")
    url = str(child.match[1])
    await asyncio.to_thread(child.expect, "console.failed")
    assert "practice model" in await asked(home, url, "still there")
    child.sendcontrol("c")
    await asyncio.to_thread(child.expect, pexpect.EOF)
    child.wait()
    assert child.exitstatus == 0


async def test_what_a_job_says_without_a_chat_is_shown_on_the_terminal(tmp_path: Path):
    home = tmp_path / "home"
    child = on_a_terminal(home)
    await asyncio.to_thread(child.expect, "you ›")
    child.send("remind me in 5 minutes to stretch\r")
    await asyncio.to_thread(child.expect, r"([0-9a-f]{12}) “stretch”")
    code, said = await hermes(home, "jobs", "run", str(child.match[1]))
    assert code == 0, said
    await asyncio.to_thread(child.expect, "You wanted to be reminded: stretch")
    child.kill(signal.SIGTERM)
    await asyncio.to_thread(child.expect, pexpect.EOF)


async def test_a_missing_library_stops_its_platform_and_no_other(home: Path, monkeypatch: pytest.MonkeyPatch):
    broken = home.parent / "broken" / "discord"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ModuleNotFoundError('No module', name='discord')\n")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    async with TelegramServer() as server:
        write_config(home, server)
        config = yaml.safe_load((home / "config.yaml").read_text())
        config["platforms"]["discord"] = {"enabled": True, "token": "x", "allowed_users": ["1"]}
        save(home / "config.yaml", yaml.safe_dump(config))
        async with running(home) as daemon:
            said = await daemon.says("this is @", "platform.not_installed")
            assert "[discord]'" in said
            assert "Traceback" not in said


async def asked(home: Path, url: str, text: str) -> str:
    headers = {"Authorization": f"Bearer {(home / 'api_key').read_text().strip()}"}
    question = {"model": "hermes", "messages": [{"role": "user", "content": text}]}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(f"{url}/v1/chat/completions", json=question) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["choices"][0]["message"]["content"])


async def test_a_crash_loop_holds_the_platforms_with_the_api_up(home: Path):
    now = time.time_ns() // 1_000_000
    async with TelegramServer() as server:
        write_config(home, server)
        (home / "gateway.pid").write_text("1\n")
        (home / "gateway.starts").write_text(json.dumps([now - 30_000, now - 20_000, now - 10_000]))
        async with running(home) as daemon:
            await daemon.says("daemon.crash_loop")
            url = re.findall(r"API +(http://\S+)", daemon.said)[0]
            async with aiohttp.ClientSession() as http:
                async with http.get(f"{url}/healthz") as answer:
                    assert answer.status == 200
                async with http.get(f"{url}/readyz") as answer:
                    told = await answer.json()
            assert told["waiting"] == ["telegram"]
            assert "held back for 5 minutes" in told["parts"]["telegram"]["words"]
            assert not server.polled_from
