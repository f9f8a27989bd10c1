"""Answers that are kept by id, through the real client: going on from them, branches, conversations, the background."""

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway import maintenance
from gateway.maintenance import RESPONSES_MS, Maintenance
from sessions import responses, store
from sessions.keys import SessionKey
from tests.conftest import HandClock
from tests.fakes.model_replies import Failure, Reply, call, calls
from tests.integration.api.serving import OTHER, OWNER, Gateway, gateway
from tests.integration.api.test_responses import WEATHER, client_of


def shown_to_model(gw: Gateway, number: int = -1) -> list[str]:
    """What the model was shown, without the system prompt and the time."""
    found = gw.model.calls[number].messages[1:]
    return [f"{one['role']}: {str(one.get('content')).rpartition(chr(10))[2]}" for one in found]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_continued_by_its_id(home: Path, stream: bool, database_url: str) -> None:
    async with gateway(home, ["One.", "Two.", "Three."], database_url=database_url) as gw, client_of(gw) as client:

        async def ask(text: str, previous: str | None) -> Any:
            if not stream:
                return await client.responses.create(model="big", input=text, previous_response_id=previous)
            async with client.responses.stream(model="big", input=text, previous_response_id=previous) as events:
                return await events.get_final_response()

        first = await ask("a", None)
        assert not await gw.database.read(store.recent)
        second = await ask("b", first.id)
        third = await ask("c", second.id)
        assert (second.previous_response_id, third.output_text) == (first.id, "Three.")
        assert shown_to_model(gw) == ["user: a", "assistant: One.", "user: b", "assistant: Two.", "user: c"]
        key = str(SessionKey.response("owner", first.id))
        session = await gw.database.read(store.active, key)
        assert session is not None
        assert (session.source, session.ns, key) == ("api", key, f"agent:main:response:owner:{first.id}")
        for answer in (first, second, third):
            found = await client.responses.retrieve(answer.id)
            assert (found.output_text, found.status) == (answer.output_text, "completed")


async def test_a_second_continuation_is_a_branch(home: Path) -> None:
    async with gateway(home, ["One.", "Two.", "Red.", "Blue.", "Green."]) as gw, client_of(gw) as client:
        first = await client.responses.create(model="big", input="a")
        second = await client.responses.create(model="big", input="b", previous_response_id=first.id)
        await client.responses.create(model="big", input="red", previous_response_id=second.id)
        branch = await client.responses.create(model="big", input="blue", previous_response_id=second.id)
        assert shown_to_model(gw) == ["user: a", "assistant: One.", "user: b", "assistant: Two.", "user: blue"]
        await client.responses.create(model="big", input="green", previous_response_id=first.id)
        assert shown_to_model(gw) == ["user: a", "assistant: One.", "user: green"]
        keys = {session.session_key for session in await gw.database.read(store.recent)}
        assert f"agent:main:response:owner:{branch.id}" in keys
        assert len(keys) == 3


async def test_a_whole_transcript_is_the_start_of_a_chain(home: Path) -> None:
    history: Any = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": "b"},
    ]
    async with gateway(home, ["Two.", "Three."]) as gw, client_of(gw) as client:
        first = await client.responses.create(model="big", input=history)
        await client.responses.create(model="big", input="c", previous_response_id=first.id)
        assert shown_to_model(gw) == ["user: a", "assistant: One.", "user: b", "assistant: Two.", "user: c"]


async def test_tools_go_back_and_forth_along_a_chain_and_its_branches(home: Path) -> None:
    script = [calls(call("weather", {"city": "Rome"}, id="call_1")), "Sunny.", "Rainy."]
    async with gateway(home, script) as gw, client_of(gw) as client:
        first = await client.responses.create(model="big", input="weather?", tools=[WEATHER])
        made = first.output[-1]
        for result, answer in (("sun", "Sunny."), ("rain", "Rainy.")):
            output: Any = [{"type": "function_call_output", "call_id": made.call_id, "output": result}]
            found = await client.responses.create(
                model="big", input=output, previous_response_id=first.id, tools=[WEATHER]
            )
            assert found.output_text == answer
            sent = gw.model.calls[-1].messages
            assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool"]
            assert sent[-1]["content"] == result


async def test_what_is_not_stored_and_what_others_have_is_not_there(home: Path) -> None:
    async with gateway(home, ["One."]) as gw, client_of(gw) as client:
        hidden = await client.responses.create(model="big", input="a", store=False)
        mine = await client.responses.create(model="big", input="a")
        for which, key in ((hidden.id, OWNER), (mine.id, OTHER), ("resp_1", OWNER)):
            assert (await gw.ask("GET", f"/v1/responses/{which}", key=key))[0] == 404
            assert (await gw.ask("DELETE", f"/v1/responses/{which}", key=key))[0] == 404
            body = {"input": "x", "previous_response_id": which}
            status, answer, _ = await gw.ask("POST", "/v1/responses", body, key)
            assert (status, answer["error"]["param"]) == (404, "previous_response_id")


async def test_the_last_of_a_chain_takes_its_session_along(home: Path) -> None:
    async with gateway(home, ["One.", "Two."]) as gw, client_of(gw) as client:
        first = await client.responses.create(model="big", input="a")
        second = await client.responses.create(model="big", input="b", previous_response_id=first.id)
        await client.responses.delete(first.id)
        assert len(await gw.database.read(store.recent)) == 1
        await client.responses.delete(second.id)
        assert not await gw.database.read(store.recent)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(second.id)


async def test_the_background_answers_at_once_and_is_polled(home: Path) -> None:
    gate = asyncio.Event()
    async with gateway(home, [Reply(text="Done.", before=gate.wait), "Next."]) as gw, client_of(gw) as client:
        begun = await client.responses.create(model="big", input="work", background=True)
        assert begun.status == "queued"
        assert (await client.responses.retrieve(begun.id)).status in {"queued", "in_progress"}
        status, answer, _ = await gw.ask("POST", "/v1/responses", {"input": "x", "previous_response_id": begun.id})
        assert (status, answer["error"]["code"]) == (409, "response_in_progress")
        gate.set()
        async with asyncio.timeout(30):
            while (found := await client.responses.retrieve(begun.id)).status != "completed":
                await asyncio.sleep(0.01)
        assert (found.output_text, found.background) == ("Done.", True)
        assert not await gw.database.read(store.recent)
        after = await client.responses.create(model="big", input="and?", previous_response_id=begun.id)
        assert after.output_text == "Next."
        assert shown_to_model(gw) == ["user: work", "assistant: Done.", "user: and?"]
        assert len(await gw.database.read(store.recent)) == 1


async def test_a_background_that_fails_says_so(home: Path) -> None:
    async with gateway(home, [Failure(status=400, message="no")]) as gw, client_of(gw) as client:
        begun = await client.responses.create(model="big", input="work", background=True)
        async with asyncio.timeout(30):
            while (found := await client.responses.retrieve(begun.id)).status in {"queued", "in_progress"}:
                await asyncio.sleep(0.01)
        assert (found.status, found.error is not None) == ("failed", True)


async def test_a_conversation_goes_on(home: Path) -> None:
    async with gateway(home, ["One.", "Two."]) as gw, client_of(gw) as client:
        items: Any = [{"type": "message", "role": "user", "content": "I am Ann."}]
        talk = await client.conversations.create(items=items, metadata={"a": "b"})
        assert (await client.conversations.retrieve(talk.id)).metadata == {"a": "b"}
        await client.responses.create(model="big", input="hi", conversation=talk.id)
        found = await client.responses.create(model="big", input="and?", conversation={"id": talk.id})
        assert shown_to_model(gw)[-2:] == ["assistant: One.", "user: and?"]
        assert "I am Ann." in str(gw.model.calls[-1].messages)
        assert found.conversation is not None
        assert found.conversation.id == talk.id
        await client.conversations.delete(talk.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="big", input="x", conversation=talk.id)


async def test_a_retry_of_a_continuation_is_no_branch(home: Path) -> None:
    gate = asyncio.Event()
    async with gateway(home, ["One.", Reply(text="Two.", before=gate.wait)]) as gw, client_of(gw) as client:
        first = await client.responses.create(model="big", input="a")
        body = {"model": "big", "input": "b", "previous_response_id": first.id}
        left = asyncio.create_task(gw.ask("POST", "/v1/responses", body))
        async with asyncio.timeout(30):
            while gw.model.count < 2:
                await asyncio.sleep(0.005)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        again = asyncio.create_task(gw.ask("POST", "/v1/responses", body, X_Stainless_Retry_Count="1"))
        gate.set()
        assert (await again)[1]["output"][0]["content"][0]["text"] == "Two."
        assert gw.model.count == 2
        assert len(await gw.database.read(responses.continuations, first.id)) == 1


async def test_answers_are_kept_for_thirty_days(home: Path) -> None:
    clock = HandClock()
    async with gateway(home, ["One.", "Two."], wall=clock) as gw, client_of(gw) as client:
        first = await client.responses.create(model="big", input="a")
        second = await client.responses.create(model="big", input="b", previous_response_id=first.id)
        upkeep = Maintenance(gw.app)
        for passed, there in ((RESPONSES_MS - 1, True), (2, False)):
            clock.tick(passed)
            await upkeep._prune_responses()
            assert (await gw.ask("GET", f"/v1/responses/{second.id}"))[0] == (200 if there else 404)
        assert not await gw.database.read(store.recent)
        await upkeep.close()


async def test_an_answer_that_is_worked_on_can_be_deleted_later(home: Path) -> None:
    gate = asyncio.Event()
    async with gateway(home, [Reply(text="Done.", before=gate.wait)]) as gw, client_of(gw) as client:
        begun = await client.responses.create(model="big", input="work", background=True)
        async with asyncio.timeout(30):
            while gw.model.count < 1:
                await asyncio.sleep(0.005)
        assert (await gw.ask("DELETE", f"/v1/responses/{begun.id}"))[0] == 409
        gate.set()
        async with asyncio.timeout(30):
            while (await client.responses.retrieve(begun.id)).status != "completed":
                await asyncio.sleep(0.005)
        await client.responses.delete(begun.id)
        assert not await gw.database.read(store.recent)


async def test_everything_old_is_removed_in_one_round(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_BATCH", 1)
    clock = HandClock()
    async with gateway(home, ["One.", "Two."], wall=clock) as gw, client_of(gw) as client:
        kept = [(await client.responses.create(model="big", input=text)).id for text in ("a", "b")]
        upkeep = Maintenance(gw.app)
        clock.tick(RESPONSES_MS + 1)
        await upkeep._prune_responses()
        assert [(await gw.ask("GET", f"/v1/responses/{which}"))[0] for which in kept] == [404, 404]
        await upkeep.close()


async def test_what_was_asked_for_is_echoed(home: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    async with gateway(home, ['{"a": 1}']) as gw:
        body = {"input": "a", "text": {"format": form, "verbosity": "low"}, "parallel_tool_calls": False, "user": "me"}
        _, answer, _ = await gw.ask("POST", "/v1/responses", body)
        assert (answer["text"], answer["parallel_tool_calls"], answer["user"]) == (body["text"], False, "me")


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("chat/completions", "n", 2),
        ("chat/completions", "logprobs", True),
        ("chat/completions", "top_logprobs", 3),
        ("chat/completions", "functions", [{"name": "f"}]),
        ("chat/completions", "function_call", "auto"),
        ("chat/completions", "audio", {"voice": "x"}),
        ("chat/completions", "made_up", 1),
        ("responses", "prompt", {"id": "x"}),
        ("responses", "top_logprobs", 3),
        ("responses", "made_up", 1),
    ],
)
async def test_what_is_not_supported_is_refused_by_its_name(home: Path, path: str, field: str, value: Any) -> None:
    body = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"input": "x"}
    async with gateway(home) as gw:
        status, answer, _ = await gw.ask("POST", f"/v1/{path}", {**body, field: value})
        assert (status, answer["error"]["param"]) == (400, field)
        assert gw.model.count == 0


async def test_a_model_is_found_by_its_name(home: Path) -> None:
    async with gateway(home, sections={"model": {"fallbacks": ["vendor/small"]}}) as gw, client_of(gw) as client:
        assert (await client.models.retrieve("vendor/small")).id == "vendor/small"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("none")
