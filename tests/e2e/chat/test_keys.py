"""Keys at the prompt: Ctrl-C, Ctrl-Z, Tab."""

from pathlib import Path

from tests.e2e.chat.windows import HERMES, SlowModel, TerminalWindow, last_request, piped
from tests.fakes.model_server import ModelServer


def test_ctrl_c_stops_the_answer_and_keeps_what_was_typed(open_window, model: tuple[ModelServer, SlowModel]):
    server, slow = model
    window = open_window()
    window.types("slowly please")
    window.sees("Ctrl-C stops")
    assert slow.halfway.wait(60)
    window.presses("my own words")
    window.sees("my own words")
    window.presses("\x03")
    window.sees("Stopped.")
    window.sees("you › my own words")
    assert window.shown.count("my own words") == 1
    window.presses(" and its end\r")
    window.sees("You said my own words and its end.")
    assert last_request(server)[-1] == ("user", "my own words and its end")


def test_ctrl_z_gives_the_shell_back_and_fg_the_chat(configured: Path, windows: list[TerminalWindow]):
    window = TerminalWindow(configured, "--norc", "--noprofile", "-i", program="bash")
    windows.append(window)
    window.types(f"PS1='shell> '; {HERMES}")
    window.sees("you ›")
    window.presses("kept\x1a")
    window.sees("Stopped")
    window.types("echo still $((6 * 7))")
    window.sees("still 42")
    window.types("fg")
    while window.shown.rpartition("still 42")[2].count("you › kept") < 1:
        window.more()
    window.presses(" words\r")
    window.sees("You said kept words.")


def test_tab_completes_commands_and_sessions(open_window, configured: Path):
    piped(configured, "chat", "-q", "my name is Ann")
    window = open_window()
    window.presses("/sta\t")
    window.sees("you › /status")
    window.presses("\r")
    window.sees("Ready.")
    window.presses("/resume my n\t")
    window.sees("you › /resume 20")
    window.presses("\r")
    window.sees("You last said: “my name is Ann”")


def test_what_is_not_yet_a_line_is_shown(open_window, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    window = open_window()
    window.types("half of it")
    window.sees("not yet a line,")  # the model says nothing more until it is let go
    slow.go_on.set()
    window.sees("not yet a line, never said.")
    window.types("hello")
    window.sees("You said hello.")
    assert window.shown.count("not yet a line") == 1


def test_a_question_of_a_script_is_previewed_too(
    configured: Path, windows: list[TerminalWindow], model: tuple[ModelServer, SlowModel]
):
    _, slow = model
    window = TerminalWindow(configured, "chat", "-q", "half of it")
    windows.append(window)
    window.sees("not yet a line,")
    slow.go_on.set()
    assert window.ends().count("not yet a line, never said.") == 1
    assert window.shown.count("not yet a line") == 1
