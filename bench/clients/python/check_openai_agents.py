import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from common import MODEL, expect
from openai import AsyncOpenAI

set_tracing_disabled(disabled=True)


async def main() -> None:
    for model in (MODEL, OpenAIChatCompletionsModel(MODEL, AsyncOpenAI())):
        agent = Agent(name="a", instructions="Be brief.", model=model)
        first = await Runner.run(agent, "hello")
        expect(first.final_output, f"run {type(model).__name__}")
        second = await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "and?"}])
        expect(second.final_output, f"a second turn {type(model).__name__}")
        stream = Runner.run_streamed(agent, "hello")
        async for _ in stream.stream_events():
            pass
        expect(stream.final_output, f"streamed {type(model).__name__}")
    agent = Agent(name="a", model=MODEL)
    first = await Runner.run(agent, "hello")
    expect((await Runner.run(agent, "and?", previous_response_id=first.last_response_id)).final_output, "previous id")


asyncio.run(main())
