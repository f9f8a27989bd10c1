from common import KEY, MODEL, URL, expect
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY)
for kind in (OpenAIChatModel, OpenAIResponsesModel):
    agent = Agent(kind(MODEL, provider=provider))
    first = agent.run_sync("hello")
    expect(first.output, kind.__name__)
    expect(agent.run_sync("and?", message_history=first.all_messages()).output, f"a second turn, {kind.__name__}")
