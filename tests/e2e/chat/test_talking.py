"""A conversation in a terminal, as it looks and as it is steered."""

from pathlib import Path

import pytest

from tests.e2e.chat.windows import SlowModel, last_request, session_in, stored, until
from tests.fakes.model_server import ModelServer


def test_a_conversation_in_the_terminal(open_window, configured: Path, model: tuple[ModelServer, SlowModel]):
    server, _ = model
    window = open_window()
    window.types("hello")
    window.sees("• two")
    assert "**" not in window.shown

    window.types("note tea")
    window.sees("The tool said Noted (no. 1).")
    assert window.is_dim("· memory")

    window.presses("\x1b[200~first line\nsecond line\x1b[201~\r")
    window.sees("second line.")
    assert last_request(server)[-1] == ("user", "first line\nsecond line")

    window.types("/title Boats")
    window.sees("called “Boats”")
    window.types("/nwe")
    window.sees("Did you mean /new?")
    window.types("/etc/hosts is broken")
    window.sees("You said /etc/hosts is broken.")

    window.presses("\x04")
    end = window.ends()
    assert window.child.exitstatus == 0
    assert f"hermes -r {session_in(end)}" in end
    assert "hello" in (configured / "history").read_text()
    assert (configured / "history").stat().st_mode & 0o777 == 0o600


def test_steering_and_stopping(open_window, configured: Path, model: tuple[ModelServer, SlowModel]):
    server, slow = model
    window = open_window()
    window.types("slowly please")
    window.sees("First part.")
    window.sees("Ctrl-C stops")
    window.types("and mind the gap")
    window.sees("Noted.")
    slow.go_on.set()
    window.sees("You said and mind the gap.")
    assert last_request(server) == [
        ("user", "slowly please"),
        ("assistant", "First part.\n\nSecond part."),
        ("user", "and mind the gap"),
    ]
    assert window.shown.count("First part.") == 1

    slow.go_on.clear()
    slow.halfway.clear()
    window.types("slowly again")
    assert slow.halfway.wait(60)
    window.sees("Ctrl-C stops")
    window.presses("\x03")
    window.sees("Stopped.")
    window.types("still there")
    window.sees("You said still there.")
    until(lambda: stored(configured, "SELECT count(*) FROM runs WHERE status = 'running'") == 0)
    end = window.is_left_by_ctrl_c()
    assert "Ctrl-C once more leaves." in end
    assert "Resume" in end


def test_two_answers_of_one_run_are_apart(open_window, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    window = open_window()
    window.types("slowly please")
    window.sees("Ctrl-C stops")
    assert slow.halfway.wait(60)
    window.types("and more")
    window.sees("Noted.")
    slow.go_on.set()
    window.sees("You said and more.")
    assert window.line_with("Second part.") == "Second part."
    assert window.shown.count("Second part.") == window.shown.count("You said and more.") == 1


@pytest.mark.parametrize(("command", "notice"), [("/undo", "I took back"), ("/new", "New conversation.")])
def test_nothing_follows_the_notice_that_an_answer_was_ended(
    open_window, model: tuple[ModelServer, SlowModel], command: str, notice: str
):
    _, slow = model
    window = open_window()
    window.types("half of a paragraph")
    window.sees("The first half")
    assert slow.halfway.wait(60)
    window.types(command)
    window.sees(notice)
    slow.go_on.set()
    window.types("hello")
    window.sees("You said hello.")
    shown = window.shown
    assert "not yet a line" not in shown
    assert "never said" not in shown


def test_a_long_paragraph_grows_line_by_line(open_window, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    window = open_window()
    window.types("long")
    window.sees("A bold word is said. A bold word is said.")
    slow.go_on.set()
    window.sees("The end of it.\n\nyou ›")  # whole: the prompt stays between its lines when one leaves before
    window.presses("\x04")
    words = " ".join(window.ends().split())
    assert words.count("A bold word is said.") == words.count("The end of it.") == 8


def test_what_is_typed_meanwhile_is_noted_once(open_window, model: tuple[ModelServer, SlowModel]):
    _, slow = model
    window = open_window()
    window.types("slowly please")
    window.sees("First part.")
    for said in ("one", "two", "three"):
        window.types(said)
        window.sees(f"you › {said}")
    slow.go_on.set()
    window.sees("You said three.")
    assert window.shown.count("Noted.") == 1
