"""What happens when an endpoint does not answer: waiting, going elsewhere, or a clear end."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import count

import pytest
from structlog.testing import capture_logs

from gateway.agent.models.chat_completions import OpenAIModel
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.models.errors import CallOutcome
from gateway.agent.models.interface import (
    AFRESH,
    ContextOverflow,
    ModelError,
    ModelRefused,
    ModelRequest,
    ModelUnreachable,
)
from gateway.agent.models.quirks import retry_after
from gateway.agent.models.retry import Retries, RetryPolicy
from gateway.agent.models.speech import Transcriber
from tests.fakes.model_replies import (
    OVERFLOWS,
    UNNAMED_OVERFLOWS,
    Failure,
    Reply,
    bad_key,
    bad_request,
    drop,
    hang,
    no_model,
    not_json,
    out_of_quota,
    rate_limited,
)
from tests.fakes.model_server import ModelServer
from tests.machine import hand_driven_loop
from tests.unit.gateway.agent.model_in_process import HELLO, ModelTime, model_in_process

PASSING = {
    "429": rate_limited(),
    "500": Failure(status=500),
    "503": Failure(status=503),
    "529": Failure(status=529, message="Overloaded"),
    "409": Failure(status=409),
    "a web page": not_json(),
    "a proxy's 502": Failure(status=502, body=b"<html>Bad Gateway</html>", content_type="text/html"),
    "a dropped connection": drop(),
    "an answer dropped before its first token": Reply(text="never", drop_after=0),
    "an error as an answer": Failure(status=200, body=b'{"error": {"message": "upstream", "code": 502}}'),
    "an error in the stream": Failure(
        status=200, body=b'data: {"error": {"message": "upstream", "code": 502}}\n\n', content_type="text/event-stream"
    ),
    "broken json in the stream": Failure(status=200, body=b'data: {"cho\n\n', content_type="text/event-stream"),
    "a stream of something else": Failure(
        status=200, body=b'data: {"choices": ["?"]}\n\ndata: [DONE]\n\n', content_type="text/event-stream"
    ),
    "an empty stream": Failure(status=200, body=b"data: [DONE]\n\n", content_type="text/event-stream"),
    "an answer that ends in an error": Reply(text="half", finish_reason="error"),
}


@pytest.mark.parametrize("failure", PASSING.values(), ids=PASSING.keys())
async def test_what_may_pass_is_tried_again(failure):
    async with model_in_process([failure, "back again"]) as talk:
        with capture_logs() as lines:
            assert (await talk.ask()).text == "back again"
        assert talk.server.count == 2
        assert talk.time.slept == [0.5]
        assert [line["retry_in"] for line in lines if line["event"] == "model.retried"] == [0.5]


@pytest.mark.parametrize("failure", PASSING.values(), ids=PASSING.keys())
async def test_what_does_not_pass_ends_after_half_a_minute(failure):
    async with model_in_process(then=failure) as talk:
        with pytest.raises(ModelUnreachable) as raised:
            await talk.ask()
        assert talk.server.count == 7
        assert talk.time.slept == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
        assert talk.model.settings.host in str(raised.value)


async def test_an_outage_of_ten_seconds_is_outlasted():
    async with model_in_process(lambda _: Failure() if talk.time.now < 10 else "back again") as talk:
        assert (await talk.ask()).text == "back again"


async def test_a_web_page_points_to_the_address():
    async with model_in_process(then=not_json()) as talk:
        with pytest.raises(ModelUnreachable, match=r"Check model\.base_url"):
            await talk.ask()


async def test_a_server_error_that_names_a_field_is_no_refusal_of_it():
    async with model_in_process([Failure(message="KeyError: stream_options")]) as talk:
        await talk.ask()
        assert talk.time.slept == [0.5]
        assert "stream_options" in talk.server.bodies[1]


async def test_a_silent_endpoint_is_asked_once_more():
    async with model_in_process([hang(), "awake again"], settings={"timeout_seconds": 0.3}) as talk:
        assert (await talk.ask()).text == "awake again"
        assert talk.server.count == 2


async def test_an_endpoint_that_stays_silent_is_given_up():
    async with model_in_process(then=hang(), settings={"timeout_seconds": 0.05}) as talk:
        with pytest.raises(ModelUnreachable, match=r"silent for 0\.05 s"):
            await talk.ask()
        assert talk.server.count == 2


def test_a_silent_endpoint_with_a_fallback_left_is_not_waited_for_again():
    time = ModelTime()
    retries = Retries(time.retry_policy(), 20, is_last=False)
    time.now += 20
    assert retries.next_wait(silent=True) is None


async def test_silence_in_the_middle_counts_from_the_last_token():
    async def long():
        await hold.wait()

    hold = asyncio.Event()
    async with model_in_process(then=Reply(text="a b", between=long), settings={"timeout_seconds": 0.05}) as talk:
        with pytest.raises(ModelUnreachable, match="silent"):
            await talk.ask()
        hold.set()


async def test_a_slow_but_steady_answer_is_not_cut():
    words, pauses = "one two three four five six seven", count()

    async def a_long_pause():
        sent = min(next(pauses), len(words.split()))
        while len(talk.shown) < sent:  # else two pauses would be one
            await asyncio.sleep(0)
        passes(8)

    settings = {"timeout_seconds": 20}
    async with model_in_process([Reply(text=words, between=a_long_pause)], settings=settings) as talk:
        with hand_driven_loop() as passes:
            assert (await talk.ask()).text == words


async def test_nobody_listens():
    time = ModelTime()
    model = OpenAIModel(ModelSettings(base_url="http://127.0.0.1:9/v1", name="m"), retry_policy=time.retry_policy())
    with pytest.raises(ModelUnreachable, match=r"127\.0\.0\.1:9 cannot be reached: connection refused"):
        await model.ask(ModelRequest(messages=HELLO))
    assert len(time.slept) == 6
    await model.aclose()


@pytest.mark.parametrize(
    ("failure", "seconds"),
    [(rate_limited("7"), 7.5), (rate_limited(ms="250"), 0.75), (rate_limited("soon"), 0.5), (rate_limited("-3"), 0.5)],
)
async def test_the_endpoint_says_how_long_to_wait(failure, seconds):
    async with model_in_process([failure]) as talk:
        await talk.ask()
        assert talk.time.slept == [seconds]


async def test_nobody_waits_an_hour():
    async with model_in_process([rate_limited("3600")]) as talk:
        with pytest.raises(ModelUnreachable, match="rate limit"):
            await talk.ask()
        assert talk.server.count == 1


def test_a_date_to_wait_for_counts_from_the_answers_own_date():
    answered = datetime(2020, 1, 1, tzinfo=UTC)
    headers = {"date": format_datetime(answered, usegmt=True)}
    headers["retry-after"] = format_datetime(answered + timedelta(seconds=9), usegmt=True)
    assert retry_after(headers) == 9
    assert retry_after({"retry-after": headers["retry-after"]}) == 0


def test_waits_grow_and_end_and_respect_the_deadline():
    policy = RetryPolicy(last_attempts=9, clock=lambda: 100.0, jitter=lambda: 0.0)
    retries = Retries(policy, 900)
    assert [retries.next_wait() for _ in range(9)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, None]
    assert Retries(policy, 0.1).next_wait() is None
    assert Retries(policy, 900).next_wait(61) is None


async def test_an_answer_that_breaks_off_begins_afresh():
    broken = Reply(text="one two three four", drop_after=3)
    async with model_in_process([broken, "one two three four"]) as talk:
        assert (await talk.ask()).text == "one two three four"
        assert talk.shown[:2] == ["one ", "two "]
        assert "".join(talk.shown[talk.shown.index(AFRESH) + 1 :]) == "one two three four"


async def test_nothing_begins_afresh_when_nothing_was_shown():
    async with model_in_process([Reply(text="x", drop_after=1), "fine"]) as talk:
        await talk.ask()
        assert AFRESH not in talk.shown


REFUSALS = {
    "a wrong key": (bad_key(), 401, "Check model.api_key"),
    "no permission": (bad_request("Forbidden", status=403), 403, "Check model.api_key"),
    "an unknown model": (no_model("big"), 404, "Check model.name"),
    "a used up quota": (out_of_quota(), 429, "quota"),
    "no credit": (bad_request("Insufficient credits", status=402), 402, "no credit"),
    "a bad schema": (bad_request("Invalid schema for function 'f': messages"), 400, "refuses the request"),
    "a key that is called bad request": (
        bad_request("API key not valid. Please pass one with the message."),
        400,
        "API key",
    ),
}


@pytest.mark.parametrize(("failure", "status", "hint"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_what_will_not_pass_ends_at_once(failure, status, hint):
    async with model_in_process([failure]) as talk:
        with pytest.raises(ModelRefused, match=hint) as raised:
            await talk.ask()
        assert (raised.value.status, raised.value.about_transcript) == (status, False)
        assert (talk.server.count, talk.time.slept) == (1, [])


async def test_no_error_tells_the_key():
    said = "Incorrect API key provided: sk-secret-123, also known as sk-proj-abcdefgh."
    async with model_in_process([bad_request(said, status=401)]) as talk:
        with pytest.raises(ModelRefused) as raised:
            await talk.ask()
        assert "sk-" not in str(raised.value)
        assert "Incorrect API key provided: [key]" in str(raised.value)


async def test_a_transcript_that_is_not_accepted_is_told_apart():
    orphan = [*HELLO, {"role": "tool", "tool_call_id": "gone", "content": "x"}]
    async with model_in_process(settings={"fallbacks": ("small",)}) as talk:
        with pytest.raises(ModelRefused) as raised:
            await talk.ask(orphan)
        assert raised.value.about_transcript
        assert talk.server.count == 1


async def test_characters_that_cannot_be_sent_are_about_the_transcript():
    async with model_in_process() as talk:
        with pytest.raises(ModelRefused, match="characters") as raised:
            await talk.ask([{"role": "user", "content": "\ud800"}])
        assert raised.value.about_transcript


@pytest.mark.parametrize("failure", OVERFLOWS.values(), ids=OVERFLOWS.keys())
async def test_a_named_window_is_learnt(failure):
    async with model_in_process([failure]) as talk:
        with pytest.raises(ContextOverflow) as raised:
            await talk.ask()
        assert raised.value.limit == 8192
        assert talk.model.window() == 8192
        assert talk.model.window("another") == 128_000
        assert talk.server.count == 1


@pytest.mark.parametrize("failure", UNNAMED_OVERFLOWS.values(), ids=UNNAMED_OVERFLOWS.keys())
async def test_an_unnamed_window_is_smaller_than_what_was_refused(failure):
    async with model_in_process([failure]) as talk:
        with pytest.raises(ContextOverflow) as raised:
            await talk.ask([{"role": "user", "content": "word " * 4_000}])
        assert raised.value.limit is None
        assert 1_024 <= talk.model.window() <= 5_010


async def test_too_long_an_output_on_top_of_the_prompt_is_an_overflow():
    words = "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum context length is 8192 tokens."
    async with model_in_process([bad_request(words)]) as talk:
        with pytest.raises(ContextOverflow):
            await talk.ask()
        assert talk.server.count == 1


async def test_a_window_stays_large_enough_to_work_with():
    async with model_in_process([bad_request("This model's maximum context length is 16 tokens.")]) as talk:
        with pytest.raises(ContextOverflow):
            await talk.ask()
        assert talk.model.window() == 1_024


async def test_a_window_never_grows():
    async with model_in_process([OVERFLOWS["openai"]], settings={"context_window": 4_000}) as talk:
        with pytest.raises(ContextOverflow):
            await talk.ask()
        assert talk.model.window() == 4_000


def _fails_for(*models: str, failure: Failure):
    return lambda body: failure if body["model"] in models else f"I am {body['model']}"


async def test_fallbacks_are_tried_in_order():
    script = _fails_for("big", "second", failure=no_model("big"))
    async with model_in_process(script, settings={"fallbacks": ("second", "third")}) as talk:
        answer = await talk.ask()
        assert (answer.text, answer.model) == ("I am third", "third")
        assert [body["model"] for body in talk.server.bodies] == ["big", "second", "third"]


async def test_a_model_that_failed_rests_while_a_fallback_answers():
    async with model_in_process(_fails_for("big", failure=Failure()), settings={"fallbacks": ("spare",)}) as talk:
        await talk.ask()
        assert talk.server.count == 5
        await talk.ask()
        assert talk.server.count == 6
        talk.time.now += 61
        await talk.ask()
        assert [body["model"] for body in talk.server.bodies[6:]] == ["big"] * 4 + ["spare"]


async def test_when_the_small_model_fails_the_main_one_answers():
    async with model_in_process(_fails_for("small", failure=no_model("small")), settings={"fast": "small"}) as talk:
        assert (await talk.ask(model="small")).text == "I am big"


async def test_the_worst_case_is_bounded():
    async with model_in_process(then=Failure(), settings={"fallbacks": ("b", "c")}) as talk:
        with pytest.raises(ModelUnreachable):
            await talk.ask()
        assert talk.server.count == 4 + 4 + 7


async def test_one_unreachable_model_makes_it_worth_trying_later():
    script = lambda body: Failure() if body["model"] == "big" else no_model("spare")  # noqa: E731
    async with model_in_process(script, settings={"fallbacks": ("spare",)}) as talk:
        with pytest.raises(ModelUnreachable, match=r"trouble of its own.*does not know spare"):
            await talk.ask()


async def test_a_fallback_begins_afresh_too():
    script = lambda body: Reply(text="a b c", drop_after=3) if body["model"] == "big" else "from spare"  # noqa: E731
    async with model_in_process(script, settings={"fallbacks": ("spare",)}) as talk:
        assert (await talk.ask()).text == "from spare"
        last = len(talk.shown) - talk.shown[::-1].index(AFRESH)
        assert "".join(talk.shown[last:]) == "from spare"


async def test_every_call_is_observed():
    async with model_in_process([rate_limited(), Failure(), "fine", bad_key()]) as talk:
        await talk.ask()
        with pytest.raises(ModelError):
            await talk.ask()
        assert [(model, outcome) for model, outcome, _, _ in talk.observed] == [
            ("big", CallOutcome.LIMITED),
            ("big", CallOutcome.UNREACHABLE),
            ("big", CallOutcome.ANSWERED),
            ("big", CallOutcome.REFUSED),
        ]
        assert talk.observed[2][3].output_tokens > 0


async def _transcriber(server: ModelServer, time: ModelTime) -> Transcriber:
    settings = ModelSettings(base_url=server.url, name="m", api_key="sk-1")
    return Transcriber(settings, retry_policy=time.retry_policy(last_attempts=3))


async def test_speech_becomes_text():
    async with ModelServer([" good morning "], api_key="sk-1") as server:
        transcriber = await _transcriber(server, ModelTime())
        assert await transcriber.transcribe(b"OggS...", "voice.ogg", language="en") == "good morning"
        assert server.uploads == [{"model": "whisper-1", "language": "en", "name": "voice.ogg", "audio": b"OggS..."}]
        await transcriber.aclose()


async def test_a_busy_transcriber_is_asked_again_and_a_refusing_one_is_not():
    time = ModelTime()
    async with ModelServer(
        [rate_limited(), "hi", bad_request("Invalid file format."), not_json()], then=Failure()
    ) as server:
        transcriber = await _transcriber(server, time)
        assert await transcriber.transcribe(b"x", "a.ogg") == "hi"
        with pytest.raises(ModelRefused, match="Invalid file format"):
            await transcriber.transcribe(b"x", "a.txt")
        with pytest.raises(ModelUnreachable):
            await transcriber.transcribe(b"x", "a.ogg")
        assert server.count == 2 + 1 + 3
        await transcriber.aclose()
