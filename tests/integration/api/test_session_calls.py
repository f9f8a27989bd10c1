"""Chat Completions on a session, which is held here: what is new in a call, the order of calls, questions, session ids."""

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from sessions import inbox, store
from sessions.keys import SessionKey
from tests.fakes.model_replies import Failure, Reply, call, calls
from tests.fakes.model_server import ModelServer
from tests.integration.api.serving import WEATHER, Gateway, client_of, gateway, one_message


async def journal(gw: Gateway, session: str, key: str = "owner") -> list[tuple[str, str]]:
    def read(conn: Any) -> list[tuple[str, str]]:
        found = store.active(conn, str(SessionKey.api(key, session)))
        return [(m.role.value, m.content or "") for m in store.read_messages(conn, found.id)] if found else []

    return await gw.database.read(read)


async def test_a_session_is_held_here_and_only_what_is_new_is_taken(home: Path) -> None:
    async with gateway(home, ["first", "second"]) as gw, client_of(gw) as client:
        headers = {"X-Hermes-Session-Id": "team/42:a"}
        raw = await client.chat.completions.with_raw_response.create(
            model="big", messages=one_message("one"), extra_headers=headers
        )
        assert raw.headers["X-Hermes-Session-Id"] == "team/42:a"
        history = [*one_message("a lie"), {"role": "assistant", "content": "another"}, *one_message("two")]
        answer = await client.chat.completions.create(
            model="big", messages=[{"role": "system", "content": "Rhyme."}, *history], extra_headers=headers
        )
        assert answer.choices[0].message.content == "second"
        assert await journal(gw, "team/42:a") == [
            ("user", "one"),
            ("assistant", "first"),
            ("user", "two"),
            ("assistant", "second"),
        ]
        last = gw.model.calls[-1].messages
        assert "Rhyme." in last[0]["content"]
        assert "a lie" not in json.dumps(last)


async def test_a_session_streams_from_the_first_word(home: Path) -> None:
    async with gateway(home, [Reply(text="a b c d")]) as gw, client_of(gw) as client:
        stream = await client.chat.completions.create(
            model="big", messages=one_message("x"), stream=True, extra_headers={"X-Hermes-Session-Id": "s"}
        )
        assert "".join([c.choices[0].delta.content or "" async for c in stream]) == "a b c d"


async def test_parallel_calls_on_one_session_strictly_alternate_in_order(home: Path) -> None:
    async with gateway(home, lambda body: "re " + body["messages"][-1]["content"].rpartition("\n")[2]) as gw:

        async def one(number: int) -> str:
            return await gw.chat(f"m{number}", "busy")

        tasks = []
        for number in range(32):
            tasks.append(asyncio.create_task(one(number)))
            await asyncio.sleep(0)
        answers = await asyncio.gather(*tasks)
        assert answers == [f"re m{number}" for number in range(32)]
        rows = await journal(gw, "busy")
        assert [role for role, _ in rows] == ["user", "assistant"] * 32
        for question, answer in zip(rows[::2], rows[1::2], strict=True):
            assert answer[1] == f"re {question[1]}"


async def test_sessions_of_different_keys_never_meet(home: Path) -> None:
    from tests.integration.api.serving import CHATTER

    async with gateway(home, ["for owner", "for chatter"]) as gw:
        await gw.chat("mine", "shared")
        await gw.chat("yours", "shared", CHATTER)
        assert await journal(gw, "shared") == [("user", "mine"), ("assistant", "for owner")]
        assert "mine" not in json.dumps(gw.model.calls[-1].messages)


async def test_going_on_without_the_results_gets_a_note(home: Path) -> None:
    script = [calls(call("weather", {"city": "Rome"}, id="call_1")), "Never mind."]
    async with gateway(home, script) as gw:
        await gw.ask(
            "POST", "/v1/chat/completions", {"messages": one_message("a"), "tools": [WEATHER]}, X_Hermes_Session_Id="s"
        )
        assert await gw.chat("forget it", "s") == "Never mind."
        sent = gw.model.calls[-1].messages
        assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "user"]
        assert "went on without it" in sent[3]["content"]


async def test_results_that_nobody_waits_for_are_refused(home: Path) -> None:
    async with gateway(home) as gw:
        body = {"messages": [{"role": "tool", "tool_call_id": "call_9", "content": "x"}]}
        status, answer, _ = await gw.ask("POST", "/v1/chat/completions", body, X_Hermes_Session_Id="s")
        assert (status, answer["error"]["code"]) == (409, "unknown_tool_call")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_question_to_a_human_is_the_answer_and_the_next_call_answers_it(home: Path, stream: bool) -> None:
    script = [calls(call("ask_human", {"question": "Red or blue?", "options": ["red", "blue"]})), "Blue it is."]
    async with gateway(home, script) as gw, client_of(gw) as client:
        extra = {"X-Hermes-Session-Id": "ask"}
        raw = await client.chat.completions.with_raw_response.create(
            model="big", messages=one_message("paint"), extra_headers=extra, stream=stream
        )
        assert raw.headers["X-Hermes-Run-Status"] == "waiting_on_human"
        parsed = raw.parse()
        text = (
            "".join([c.choices[0].delta.content or "" async for c in parsed])
            if stream
            else parsed.choices[0].message.content
        )
        assert text.startswith("Red or blue?")
        assert await gw.chat("blue", "ask") == "Blue it is."
        assert gw.model.calls[-1].messages[-1] == {"role": "tool", "tool_call_id": "call_ask_human", "content": "blue"}


async def test_a_call_that_was_queued_behind_a_question_answers_it(home: Path) -> None:
    gate = asyncio.Event()
    script = [Reply(tool_calls=(call("ask_human", {"question": "Which?"}),), before=gate.wait), "Done."]
    async with gateway(home, script) as gw:
        first = asyncio.create_task(gw.chat("go", "q"))
        while not gw.model.calls:
            await asyncio.sleep(0.005)
        second = asyncio.create_task(gw.chat("this one", "q"))
        async with asyncio.timeout(30):
            while not await gw.database.read(inbox.unread, str(SessionKey.api("owner", "q"))):
                await asyncio.sleep(0.005)
        gate.set()
        assert await first == "Which?"
        assert await second == "Done."


async def test_a_caller_that_goes_away_does_not_stop_the_run(home: Path) -> None:
    gate = asyncio.Event()
    async with gateway(home, [Reply(text="late answer", before=gate.wait), "next"]) as gw:
        task = asyncio.create_task(gw.chat("go", "away"))
        while not gw.model.calls:
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gate.set()
        assert await gw.chat("still there?", "away") == "next"
        assert [text for _, text in await journal(gw, "away")] == ["go", "late answer", "still there?", "next"]


async def test_the_same_idempotency_key_gives_the_same_answer_once(home: Path) -> None:
    async with gateway(home, ["once"]) as gw:
        body = {"messages": one_message("pay")}
        ask = lambda sent: gw.ask("POST", "/v1/chat/completions", sent, X_Hermes_Session_Id="i", Idempotency_Key="k1")  # noqa: E731
        first, second = await asyncio.gather(ask(body), ask(body))
        assert first[1]["choices"] == second[1]["choices"]
        assert gw.model.count == 1
        status, answer, _ = await ask({"messages": one_message("other")})
        assert (status, answer["error"]["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("session", ["a", "x" * 256, "team/42: a~", "Zoë", "会議室", "50% off"])
async def test_session_ids_come_back_as_they_were_sent(home: Path, session: str) -> None:
    async with gateway(home) as gw:
        body = {"messages": one_message("x")}
        status, _, headers = await gw.ask("POST", "/v1/chat/completions", body, X_Hermes_Session_Id=session)
        assert (status, headers["X-Hermes-Session-Id"]) == (200, session)
        assert (await journal(gw, session))[0] == ("user", "x")


@pytest.mark.parametrize("session", ["", "x" * 257, "tab\tinside"])
async def test_session_ids_are_checked(home: Path, session: str) -> None:
    async with gateway(home) as gw:
        status, _, _ = await gw.ask(
            "POST", "/v1/chat/completions", {"messages": one_message("x")}, X_Hermes_Session_Id=session
        )
        assert status == 400


async def test_one_database_of_each_kind_holds_a_conversation(home: Path, database_url: str) -> None:
    async with gateway(home, ["one", "two"], database_url=database_url) as gw:
        assert await gw.chat("a", "pg") == "one"
        assert await gw.chat("b", "pg") == "two"
        assert [role for role, _ in await journal(gw, "pg")] == ["user", "assistant"] * 2


async def test_a_question_is_answered_after_a_restart(home: Path) -> None:
    async with ModelServer([calls(call("ask_human", {"question": "Sure?"})), "Good."]) as model:
        async with gateway(home, model=model) as gw:
            assert await gw.chat("go", "r") == "Sure?"
        async with gateway(home, model=model) as gw:
            assert await gw.chat("yes", "r") == "Good."


async def test_a_failed_run_is_not_repeated_by_the_client_library(home: Path) -> None:
    failing = Failure(status=401, message="Incorrect API key", code="invalid_api_key")
    async with gateway(home, lambda _: failing) as gw:
        async with client_of(gw, max_retries=3) as client:
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(
                    model="big", messages=one_message("x"), extra_headers={"X-Hermes-Session-Id": "s"}
                )
        assert await journal(gw, "s") == [("user", "x")]
