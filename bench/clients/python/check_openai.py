from common import MODEL, expect
from openai import OpenAI

client = OpenAI()
said = [{"role": "user", "content": "hello"}]
expect(MODEL in [model.id for model in client.models.list()], "models.list")
expect(client.models.retrieve(MODEL).id == MODEL, "models.retrieve")
expect(client.chat.completions.create(model=MODEL, messages=said).choices[0].message.content, "chat")
chunks = list(client.chat.completions.create(model=MODEL, messages=said, stream=True))
expect("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), "chat, streamed")
first = client.responses.create(model=MODEL, input="hello")
second = client.responses.create(model=MODEL, input="and?", previous_response_id=first.id)
expect(client.responses.retrieve(second.id).output_text == second.output_text != "", "responses by id")
with client.responses.stream(model=MODEL, input="hello") as stream:
    expect(stream.get_final_response().output_text, "responses, streamed")
talk = client.conversations.create()
expect(client.responses.create(model=MODEL, input="hello", conversation=talk.id).output_text, "conversations")
client.responses.delete(first.id)
