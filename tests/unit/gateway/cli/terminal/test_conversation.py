"""What a conversation in the terminal says of its runs."""

from pathlib import Path
from typing import Any

import pytest

from gateway.cli.terminal.conversation import TerminalConversation, failure_text
from gateway.texts import say
from sessions import store
from sessions.clock import now_ms
from sessions.db import Database
from sessions.keys import SessionKey
from sessions.records import EndReason, Run
from tests.app import make_app

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


@pytest.mark.parametrize(
    ("reason", "goes_on"), [(EndReason.USER, True), (EndReason.IDLE, False), (EndReason.DAILY, False)]
)
async def test_an_open_terminal_goes_on_after_another_one_has_left_and_begins_anew_after_a_reset(
    home: Path, sqlite: Database, reason: EndReason, goes_on: bool
) -> None:
    conversation = TerminalConversation(make_app(home, sqlite), SessionKey.cli("20260101_000000_aaaaaaaa"))
    await conversation.say("hello")
    before = await conversation.session()
    assert before is not None
    await conversation.command("/stop")
    await sqlite.write(store.end, before.id, reason, now_ms())
    await conversation.say("hello again")
    after = await conversation.session()
    assert after is not None
    assert (after.id == before.id) is goes_on
    told = await conversation.reset_notice()
    assert (told is None) is goes_on
    assert told is None or told.endswith(say("session.reset_back"))
    assert await conversation.reset_notice() is None, "it is said once"
