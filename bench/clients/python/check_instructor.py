import instructor
from common import MODEL, expect
from openai import OpenAI
from pydantic import BaseModel


class Extracted(BaseModel):
    value: int


client = instructor.from_openai(OpenAI(), mode=instructor.Mode.MD_JSON)
said = [{"role": "user", "content": 'repeat: {"value": 4}'}]
found = client.chat.completions.create(model=MODEL, messages=said, response_model=Extracted, max_retries=0)
expect(isinstance(found.value, int), "a structured answer")
