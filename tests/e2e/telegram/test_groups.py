"""Coming into a group, and leaving it."""

import asyncio
from pathlib import Path

from sqlalchemy import Connection, text

from gateway.texts import say
from tests.e2e.telegram.daemon import Gate, Scene, answering, scene, settled, until_dead
from tests.fakes.model_replies import Reply

HELLO = say("people.group_hello")


async def test_it_says_hello_once_and_then_listens(home: Path) -> None:
    async with scene(home) as s:
        group = s.server.group()
        s.server.adds(s.ann, group)
        assert await s.server.answered(group.id) == [HELLO]
        s.server.kick(group, s.ann)
        s.server.adds(s.ann, group)
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        answers = await s.server.answered(group.id, 2)
        assert answers.count(HELLO) == 1
        assert "practice model" in answers[1]


async def test_strangers_groups_hear_nothing(home: Path) -> None:
    async with scene(home, allowed_chats=["-3"]) as s:
        eve = s.server.user(66, "Eve")
        s.server.adds(eve, s.server.group(-2))
        s.server.adds(eve, s.server.group(-3))
        assert await s.server.answered(-3) == [HELLO]
        assert s.server.answers(-2) == []


async def test_what_waits_for_a_chat_is_given_up_when_the_bot_is_removed(home: Path) -> None:
    async with scene(home) as s:
        group = s.server.group()
        s.server.rate_limit("sendMessage", retry_after=600)
        s.server.user_says(group, s.ann, "@hermes_bot hello")
        await until_put_off(s)
        s.server.kick(group)
        (why,) = await until_dead(s, 1)
        assert "removed" in why


async def test_what_waits_for_somebody_is_given_up_when_they_block_the_bot(home: Path) -> None:
    async with scene(home) as s:
        s.server.rate_limit("sendMessage", retry_after=600)
        s.says("hello")
        await until_put_off(s)
        s.server.kick(s.dm)
        (why,) = await until_dead(s, 1)
        assert "blocked" in why


async def until_put_off(s: Scene) -> None:
    async with asyncio.timeout(30):
        while not await s.app.database.read(_put_off):
            await asyncio.sleep(0.01)


def _put_off(conn: Connection) -> bool:
    return conn.execute(text("SELECT count(*) FROM outbox WHERE last_error IS NOT NULL")).scalar_one() > 0


async def test_a_model_hears_whose_words_are_forwarded(home: Path) -> None:
    async with scene(home) as s:
        origin = {"type": "user", "sender_user": s.server.user(8, "Bob").wire(), "date": 1}
        assert "(forwarded from Bob)\n/stop the presses" in await s.answer_to(
            "/stop the presses", forward_origin=origin
        )


async def test_a_place_is_told_in_words(home: Path) -> None:
    async with scene(home) as s:
        place = {"longitude": 13.4, "latitude": 52.5}
        assert "[location 52.50000 13.40000]" in await s.answer_to("", location=place)


async def test_who_asked_while_another_was_answered_gets_an_answer_of_their_own(home: Path) -> None:
    """It replies to their message, its preview has its beginning, and whoever asked is told of it."""
    first, second = Gate(), Gate()
    replies = [
        Reply(text="For Ann, all of it.", chunks=("For Ann, ", "all ", "of it."), between=first),
        Reply(text="For Bob, all of it.", chunks=("For Bob, ", "all ", "of it."), between=second),
    ]
    async with answering(home, *replies, allowed_users=["7", "8"]) as (s, _):
        group, bob = s.server.group(), s.server.user(8, "Bob")
        asked = s.server.user_says(group, s.ann, "@hermes_bot and me?")
        await s.server.answered(group.id)
        also = s.server.user_says(group, bob, "@hermes_bot and me?")
        first.open.set()
        await s.server.until(lambda: "For Ann, all of it." in s.server.answers(group.id))
        await s.server.until(lambda: len(s.server.answers(group.id)) == 2)
        assert s.server.answers(group.id)[1].startswith("For Bob,")
        second.open.set()
        await s.server.until(lambda: s.server.answers(group.id) == ["For Ann, all of it.", "For Bob, all of it."])
        await settled(s.app.database)
        mine = [message for message in s.server.chat(group.id) if message.text in s.server.answers(group.id)]
        assert [message.reply_to for message in mine] == [asked.body["message_id"], also.body["message_id"]]
        assert [message.silent for message in mine] == [False, False]
