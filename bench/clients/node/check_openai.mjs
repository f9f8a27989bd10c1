import OpenAI from "openai";
import { KEY, MODEL, URL_, expect } from "./common.mjs";

const client = new OpenAI({ baseURL: `${URL_}/v1`, apiKey: KEY });
const messages = [{ role: "user", content: "hello" }];
expect((await client.models.retrieve(MODEL)).id === MODEL, "models.retrieve");
expect((await client.chat.completions.create({ model: MODEL, messages })).choices[0].message.content, "chat");
let text = "";
for await (const chunk of await client.chat.completions.create({ model: MODEL, messages, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
expect(text, "chat, streamed");
const first = await client.responses.create({ model: MODEL, input: "hello" });
const second = await client.responses.create({ model: MODEL, input: "and?", previous_response_id: first.id });
expect((await client.responses.retrieve(second.id)).output_text === second.output_text, "responses by id");
expect((await client.responses.stream({ model: MODEL, input: "hello" }).finalResponse()).output_text, "responses, streamed");
