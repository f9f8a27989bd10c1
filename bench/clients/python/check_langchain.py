from common import MODEL, expect
from langchain_openai import ChatOpenAI

for fields in ({}, {"use_responses_api": True}, {"use_responses_api": True, "use_previous_response_id": True}):
    model = ChatOpenAI(model=MODEL, **fields)
    first = model.invoke("hello")
    expect(first.text, f"invoke {fields}")
    expect(model.invoke([("human", "hello"), first, ("human", "and?")]).text, f"a second turn {fields}")
    expect("".join(chunk.text for chunk in model.stream("hello")), f"stream {fields}")
