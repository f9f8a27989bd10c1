import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";
import { KEY, MODEL, URL_, expect } from "./common.mjs";

const provider = createOpenAI({ baseURL: `${URL_}/v1`, apiKey: KEY });
for (const [name, model] of [["chat", provider.chat(MODEL)], ["responses", provider.responses(MODEL)]]) {
  expect((await generateText({ model, prompt: "hello" })).text, `generateText, ${name}`);
  let text = "";
  for await (const piece of streamText({ model, prompt: "hello" }).textStream) text += piece;
  expect(text, `streamText, ${name}`);
}
