"""Draws the pictures of the README from real runs: `make pictures`. A test compares their text with what is committed."""

import asyncio
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable
from html import escape, unescape
from pathlib import Path

import pexpect
import pyte
import yaml
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
HERMES = str(Path(sys.executable).with_name("hermes"))
WIDTH, HEIGHT = 118, 40
PORT = 8642
_FONT = re.compile(r"@font-face \{.*?\}", re.DOTALL)
_CHANGING = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d"), "2026-03-05 09:15"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), f"http://127.0.0.1:{PORT}"),
)


def terminal(home: Path, arguments: list[str], script: Callable[[pexpect.spawn], None]) -> list[str]:
    """What stands on the screen after the script, as lines."""
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environ |= {"HOME": str(home), "HERMES_HOME": str(home / ".hermes"), "TERM": "xterm-256color", "NO_COLOR": "1"}
    environ["PATH"] = f"{Path(HERMES).parent}{os.pathsep}{os.environ['PATH']}"
    environ |= {"COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
    environ["PROMPT_TOOLKIT_NO_CPR"] = "1"  # nobody answers where the cursor is
    child = pexpect.spawn(HERMES, arguments, env=environ, dimensions=(HEIGHT, WIDTH), encoding="utf-8", timeout=60)
    screen = pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(screen)
    seen: list[str] = []
    child.logfile_read = _Log(seen)
    script(child)
    stream.feed("".join(seen))
    if child.isalive():
        child.send("\x03")
        child.expect_exact("Ctrl-C")
        child.send("\x03")
        child.expect(pexpect.EOF)
    child.close(force=True)
    lines = [line.rstrip().replace(str(home), "/home/ann") for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return [_steady(line) for line in lines]


class _Log:
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def write(self, text: str) -> None:
        self._seen.append(text)

    def flush(self) -> None:
        pass


def _steady(line: str) -> str:
    line = re.sub(r"\d{8}_\d{6}_([0-9a-f]{8})", lambda found: f"20260305_091523_{_hex(found.group(1))}", line)
    for pattern, text in _CHANGING:
        line = pattern.sub(text, line)
    return line


_IDS: dict[str, str] = {}


def _hex(drawn: str) -> str:
    """The same eight digits in every drawing, others for every session."""
    return _IDS.setdefault(drawn, ("a1b2c3d4", "5e6f7a8b", "9c0d1e2f")[len(_IDS) % 3])


def as_svg(lines: list[str], title: str) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text(line), no_wrap=True, overflow="crop")
    return _FONT.sub("", console.export_svg(title=title, unique_id="hermes"))


def words_of(svg: str) -> str:
    """The text of a picture: what a test compares."""
    found = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    return "\n".join(unescape(each).replace("\xa0", " ").rstrip() for each in found)


def first_screen(home: Path) -> list[str]:
    """`make run`, and the first promise below it: what is noted is known after `/new`."""

    def script(child: pexpect.spawn) -> None:
        for said, answer in (
            ("remember that I prefer tea", "(no. 1)"),
            ("/new", "the old one."),
            ("what do I drink?", "you prefer tea."),
        ):
            child.expect_exact("you ›")
            child.send(f"{said}\r")
            child.expect_exact(answer)
        child.expect_exact("you ›")
        child.expect(pexpect.TIMEOUT, timeout=1)  # reads until the prompt stands below the whole answer

    configure(home)
    return terminal(home, ["gateway", "run"], script)


def ended(child: pexpect.spawn) -> None:
    child.expect(pexpect.EOF)


def sessions(home: Path) -> list[str]:
    """The two conversations of the first screen."""
    return ["$ hermes sessions list", *terminal(home, ["sessions", "list"], ended)]


def doctor(home: Path) -> list[str]:
    (home / ".hermes").chmod(0o755)
    found = terminal(home, ["doctor"], ended)
    (home / ".hermes").chmod(0o700)
    return ["$ hermes doctor", *found]


def config_check(home: Path) -> list[str]:
    bad = "session_reset:\n  mode: dayly\n  idle_minuts: 240\n  timezone: Europe/Londn\n"
    (home / ".hermes" / "config.yaml").write_text(bad)
    return ["$ hermes config check", *terminal(home, ["config", "check"], ended)]


def configure(home: Path) -> None:
    from tests.machine import free_port

    folder = home / ".hermes"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"model": {"provider": "practice"}, "api": {"port": free_port()}})
    )
    (folder / "config.yaml").chmod(0o600)


async def conversation() -> list[tuple[str, str, tuple[str, ...]]]:
    """A chat on Telegram, as the wire has seen it: who, what, and the buttons."""
    from tests.e2e.telegram.daemon import scene

    with tempfile.TemporaryDirectory() as folder:
        async with scene(Path(folder)) as found:
            shown: list[tuple[str, str, tuple[str, ...]]] = []
            for said in ("remember that I prefer tea", "/new", "what do I drink?", "ask me"):
                answer = await found.answer_to(said)
                rows = found.server.chat(found.dm.id)[-1].body.get("reply_markup", {}).get("inline_keyboard", [])
                buttons = tuple(str(button["text"]) for row in rows for button in row)
                shown += [("Ann", said, ()), ("hermes", answer, buttons)]
            return shown


def chat_svg(shown: list[tuple[str, str, tuple[str, ...]]]) -> str:
    """Speech bubbles."""
    parts: list[str] = []
    y = 20
    for who, text, buttons in shown:
        lines = [piece for line in text.splitlines() for piece in _wrapped(line)] or [""]
        height = 20 * len(lines) + 16
        wide = max(8 * max(map(len, lines)) + 28, 60)
        x = 700 - wide - 20 if who == "Ann" else 20
        colour = "#d7f0ff" if who == "Ann" else "#ffffff"
        parts.append(f'<rect x="{x}" y="{y}" width="{wide}" height="{height}" rx="12" fill="{colour}"/>')
        for number, line in enumerate(lines):
            parts.append(f'<text x="{x + 14}" y="{y + 24 + 20 * number}">{escape(line)}</text>')
        y += height + 6
        for label in buttons:
            parts.append(f'<rect x="{x}" y="{y}" width="{wide}" height="28" rx="8" fill="#c4dcea"/>')
            parts.append(f'<text x="{x + 14}" y="{y + 19}">{escape(label)}</text>')
            y += 32
        y += 6
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{y + 14}" font-family="monospace" font-size="13">'
    )
    return f'{head}<rect width="700" height="{y + 14}" rx="14" fill="#8fb2c6"/>{"".join(parts)}</svg>\n'


def _wrapped(line: str) -> list[str]:
    import textwrap

    return textwrap.wrap(line, 72) or [""]


def draw() -> dict[str, str]:
    """Every picture by its name."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        return {
            "run.svg": as_svg(first_screen(home), "make run"),
            "sessions.svg": as_svg(sessions(home), "hermes sessions list"),
            "doctor.svg": as_svg(doctor(home), "hermes doctor"),
            "config-check.svg": as_svg(config_check(home), "hermes config check"),
            "chat.svg": chat_svg(asyncio.run(conversation())),
        }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, svg in draw().items():
        (FOLDER / name).write_text(svg)
        sys.stderr.write(f"Drawn: docs/pictures/{name}\n")


if __name__ == "__main__":
    main()
