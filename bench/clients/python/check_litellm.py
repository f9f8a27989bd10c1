import litellm
from common import KEY, MODEL, URL, expect

to = {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": KEY}
said = [{"role": "user", "content": "hello"}]
expect(litellm.completion(messages=said, **to).choices[0].message.content, "completion")
chunks = litellm.completion(messages=said, stream=True, **to)
expect("".join(chunk.choices[0].delta.content or "" for chunk in chunks), "completion, streamed")
expect(litellm.responses(input="hello", **to).output, "responses")
