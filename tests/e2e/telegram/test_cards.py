"""A question with buttons, answered in every way there is."""

from pathlib import Path

import pytest

from gateway.texts import say
from tests.e2e.telegram.daemon import Scene, answering, scene
from tests.fakes.model_replies import call, calls
from tests.fakes.telegram_world import TelegramMessage


async def asked(s: Scene) -> TelegramMessage:
    await s.answer_to("ask me something")
    (card,) = [message for message in s.server.chat(s.dm.id) if message.buttons]
    return card


async def test_a_tap_closes_the_card(home: Path) -> None:
    async with scene(home) as s:
        card = await asked(s)
        s.server.taps(s.ann, card, "Green")
        await s.server.until(lambda: "Answered by Ann: Green" in card.text)
        assert card.buttons == []
        assert say("ask.or_reply") not in card.text


@pytest.mark.parametrize(
    ("said", "outcome"),
    [("violet", "Answered by Ann: violet"), ("/stop", say("ask.closed")), ("/new", say("ask.closed"))],
)
async def test_words_close_it_too(home: Path, said: str, outcome: str) -> None:
    async with scene(home) as s:
        card = await asked(s)
        s.says(said)
        await s.server.until(lambda: outcome in card.text)
        assert card.buttons == []
        assert card.text.startswith("Which colour do you like best?")
        assert sum(outcome in text for text in card.texts) == 1


async def test_the_last_piece_of_a_long_question_has_the_buttons_and_loses_them(home: Path) -> None:
    question = "`a` " * 120 + "\n\nWhich?"  # Telegram takes a hundred marks in a message
    asking = calls(call("ask_human", {"question": question, "options": ["Red", "Blue"]}))
    async with answering(home, asking, "Thank you.") as (s, _):
        s.says("hello")
        first, card = await s.server.answered(s.dm.id, 2)
        assert card.endswith(say("ask.or_reply"))
        last = s.server.chat(s.dm.id)[-1]
        s.says("Red, please")
        await s.server.until(lambda: "Answered by Ann: Red, please" in last.text)
        assert last.text.startswith(card.removesuffix(say("ask.or_reply")))
        assert last.buttons == []
        assert s.server.chat(s.dm.id)[1].text == first


async def test_a_card_that_somebody_deleted_is_missed_by_nobody(home: Path) -> None:
    async with scene(home) as s:
        card = await asked(s)
        card.deleted = True
        assert "violet" in await s.answer_to("violet")
