"""Whoever logs: one line for each event, and no secret in it."""

import io
import json
import logging
import logging.handlers
import re
from collections.abc import Generator
from pathlib import Path

import pytest
import structlog

from gateway.observe import redaction
from gateway.observe.logging import configure
from gateway.observe.redaction import hide, redact

SECRET = "correct-horse-battery"
TIME = re.compile(r"^[0-9T:.-]+Z", re.MULTILINE)


@pytest.fixture(autouse=True)
def as_before() -> Generator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    secrets = set(redaction._secrets)
    yield
    root.handlers = handlers
    root.setLevel(level)
    redaction._secrets.clear()
    redaction._secrets.update(secrets)
    structlog.reset_defaults()


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    hide([SECRET, "", "short"])
    configure("debug", tmp_path / "logs", colors=False)

    def read() -> str:
        written = screen.getvalue()
        kept = (tmp_path / "logs" / "hermes.log").read_text()
        assert TIME.sub("", kept) == TIME.sub("", written)
        return written

    return read


def test_an_event_is_one_line_with_its_values(lines):
    structlog.get_logger("gateway.x").info("run.finished", run_id="r1", count=3)
    written = lines()
    assert written.count("\n") == 1
    assert "run.finished" in written
    assert "run_id=r1" in written
    assert "count=3" in written


@pytest.mark.parametrize(
    "value",
    [SECRET, f"at {SECRET}!", ValueError(SECRET), [SECRET], {"key": SECRET}, ("a", {"b": [SECRET]}), SECRET.encode()],
)
def test_a_known_secret_never_appears(lines, value: object):
    structlog.get_logger("gateway.x").warning("x", value=value, other=value)
    logging.getLogger("aiohttp").warning("trouble with %s", value)
    written = lines()
    assert SECRET not in written
    assert "****" in written


@pytest.mark.parametrize(
    "text",
    [
        "https://api.telegram.org/bot123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc/getMe",
        "Authorization: Bearer abcdefgh12345678",
        "key sk-proj-abcdefghijklmnop1234 refused",
        "xoxb-123456789012-abcdefghijkl",
        "postgresql://user:pass-word@host/db",
        "http://user:pass-word@abcdefghijkl@host/v1",
        "https://abcdefghijkl@host",
        "EAAabcdefghijklmnop1234567",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str):
    hidden = redact(text)
    assert "****" in hidden
    for secret in ("AAEhBOweik6ad9r", "abcdefgh12345678", "abcdefghijklmnop", "abcdefghijkl", "pass-word"):
        assert secret not in hidden


@pytest.mark.parametrize("text", ["model skylark-pro-250415-preview", "https://host/v1", "hkust-large-language-model"])
def test_what_only_begins_like_a_secret_stays(text: str):
    assert redact(text) == text


def test_a_traceback_has_no_values_of_variables_and_no_secrets(lines):
    def fail() -> None:
        inside = "value of a variable"
        raise ValueError(f"{SECRET} {len(inside)}")

    for log in (structlog.get_logger("gateway.x"), logging.getLogger("gateway.y")):
        try:
            fail()
        except ValueError:
            log.exception("run.failed")
    written = lines()
    assert written.count("Traceback") == 2
    assert SECRET not in written
    assert "value of a variable" not in written


def test_libraries_are_heard_from_warning_on(lines):
    for name in ("httpx", "openai", "telegram", "aiohttp.access"):
        logging.getLogger(name).info("chatter")
    logging.getLogger("telegram").warning("trouble")
    logging.getLogger("sessions.db").info("ours")
    written = lines()
    assert "chatter" not in written
    assert "trouble" in written
    assert "ours" in written


def test_log_files_are_private_and_have_no_colours(lines, tmp_path: Path):
    structlog.get_logger("gateway.x").error("x")
    assert "\x1b" not in lines()
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700


def test_json_is_one_object_a_line_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    hide([SECRET])
    configure("info", tmp_path / "logs", form="json")

    structlog.get_logger("gateway.x").info("run.finished", tokens=3, said=f"key {SECRET}")
    try:
        raise ValueError("Zoë")
    except ValueError:
        structlog.get_logger("gateway.x").exception("run.failed")

    finished, failed = [json.loads(line) for line in screen.getvalue().splitlines()]
    assert (finished["event"], finished["tokens"], finished["level"]) == ("run.finished", 3, "info")
    assert SECRET not in finished["said"]
    assert "ValueError: Zoë" in failed["exception"]
    assert (tmp_path / "logs" / "hermes.log").read_text() == screen.getvalue()
    assert (tmp_path / "logs" / "hermes.log").stat().st_mode & 0o777 == 0o600


def test_lines_for_the_journal_begin_with_their_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with (tmp_path / "journal").open("w") as stream:
        stat = (tmp_path / "journal").stat()
        monkeypatch.setenv("JOURNAL_STREAM", f"{stat.st_dev}:{stat.st_ino}")
        monkeypatch.setattr("sys.stderr", stream)
        configure("info")
        logger = structlog.get_logger("gateway.x")
        logger.info("run.finished", run_id="r1")
        logger.warning("two\nlines")
        stream.flush()

        lines = (tmp_path / "journal").read_text().splitlines()

    assert [line[:3] for line in lines] == ["<6>", "<4>", "<4>"]
    assert lines[0].startswith("<6>[info")


def test_another_stream_than_the_journals_has_no_priorities(monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    monkeypatch.setattr("sys.stderr", screen)
    configure("info", colors=False)
    structlog.get_logger("gateway.x").info("run.finished")
    assert TIME.match(screen.getvalue())


def test_what_a_terminal_would_obey_is_written_out(lines):
    structlog.get_logger("gateway.x").warning("request.failed", path="/\x1b[2J\x1b]0;owned\x07\x9b1m\x7f\r/x")
    written = lines()
    assert not [char for char in written if (ord(char) < 32 and char != "\n") or 127 <= ord(char) < 160]
    assert "\\x1b[2J" in written


def test_a_library_says_the_same_once_a_minute(lines):
    for number in range(50):
        logging.getLogger("asyncio").error("socket.accept() out of system resource\nsocket: %s", number)
        structlog.get_logger("gateway.x").warning("run.failed", run_id=number)
    written = lines()
    assert written.count("out of system resource") == 1
    assert written.count("run.failed") == 50


def test_log_files_are_the_owners_also_after_rotation(tmp_path: Path):
    old = tmp_path / "logs" / "hermes.log"
    old.parent.mkdir()
    old.write_text("from an older version\n")
    old.chmod(0o644)
    configure("info", tmp_path / "logs", colors=False)
    structlog.get_logger("gateway.x").info("a")
    handler = logging.getLogger().handlers[1]
    assert isinstance(handler, logging.handlers.RotatingFileHandler)
    handler.doRollover()
    structlog.get_logger("gateway.x").info("b")
    assert {path.stat().st_mode & 0o777 for path in old.parent.iterdir()} == {0o600}
