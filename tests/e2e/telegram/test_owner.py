"""Whose the bot is: stored once, and no list of people hands the owner's memory to somebody else."""

from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.config.problems import BadConfig
from gateway.config.reading import load
from sessions import store
from tests.e2e.telegram.daemon import answering, write_config
from tests.e2e.test_daemon import hermes

KEYS = ["agent:main:telegram:dm", "agent:main:telegram:dm:8"]


async def test_another_order_of_the_list_changes_nobodys_conversation(home: Path):
    async with answering(home, "hi", "ho", allowed_users=["7", "8"]) as (s, _):
        bob = s.server.user(8, "Bob")
        await s.answer_to("I prefer tea")
        write_config(home, s.server, allowed_users=["8", "7"])
        await s.serving.reload(load(home, {}))
        s.server.user_says(s.server.dm(bob), bob, "what do I drink?")
        await s.server.answered(s.server.dm(bob).id)
        assert sorted(each.session_key for each in await s.app.database.read(store.recent)) == KEYS


@pytest.mark.parametrize("stored", [True, False])
async def test_a_list_without_the_owner_is_a_mistake_that_says_who_would_read_what(home: Path, stored: bool):
    async with answering(home, "hi", allowed_users=["7", "8"]) as (s, _):
        await s.answer_to("I prefer tea")
        if not stored:  # a home of an older version
            await s.app.database.write(
                lambda conn: conn.execute(text("DELETE FROM meta WHERE key LIKE 'owner:%'")) and None
            )
        write_config(home, s.server, allowed_users=["8"])
        with pytest.raises(BadConfig) as raised:
            load(home, {})
        (problem,) = raised.value.problems
        assert problem.path == "platforms.telegram.allowed_users"
        assert problem.place.line > 0
        assert "leaves out 7, who is the owner" in problem.said
        assert 'owner: "7" beside it gives 8 a memory of their own' in problem.hint
        assert 'owner: "8" lets 8 read the notes, sessions and jobs of 7' in problem.hint
        code, said = await hermes(home, "config", "check")
        assert (code, "platforms.telegram.allowed_users" in said) == (2, True)
        for good in ({"owner": "7"}, {"owner": "8"}, {"allowed_users": ["*"]}, {"dm_scope": "per_user"}):
            write_config(home, s.server, **{"allowed_users": ["8"], **good})
            load(home, {})
