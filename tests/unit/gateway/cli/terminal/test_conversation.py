"""What a conversation in the terminal says of its runs."""

from typing import Any

import pytest

from gateway.cli.terminal.conversation import failure_text
from gateway.texts import say
from sessions.records import Run

KEPT = say("run.kept")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("The key is not known", f"The key is not known. {KEPT}"),
        ("It was silent. ", f"It was silent. {KEPT}"),
        (None, say("run.failed")),
    ],
)
def test_a_failure_is_whole_sentences_and_says_what_is_kept_once(error: str | None, told: str) -> None:
    known: dict[str, Any] = dict.fromkeys(Run.__slots__)
    assert failure_text(Run(**{**known, "error": error})) == told
