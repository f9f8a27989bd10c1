import { ChatOpenAI } from "@langchain/openai";
import { KEY, MODEL, URL_, expect } from "./common.mjs";

for (const fields of [{}, { useResponsesApi: true }]) {
  const model = new ChatOpenAI({ model: MODEL, apiKey: KEY, configuration: { baseURL: `${URL_}/v1` }, ...fields });
  expect((await model.invoke("hello")).text, `invoke ${JSON.stringify(fields)}`);
  let text = "";
  for await (const chunk of await model.stream("hello")) text += chunk.text;
  expect(text, `stream ${JSON.stringify(fields)}`);
}
