"""Request and response bodies of the Responses API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from gateway.api.http.body_files import FileUrl
from gateway.api.http.endpoint import RequestModel
from gateway.api.openai.chat_schemas import (
    PARTS,
    AudioPart,
    CallId,
    FileSource,
    JsonObject,
    Lenient,
    Parameters,
    SamplingHints,
    Text,
    TokenCount,
    ToolName,
)


class InputText(Lenient):
    type: Literal["input_text", "output_text", "text"]
    text: Text


class InputImage(Lenient):
    type: Literal["input_image"]
    image_url: FileUrl
    detail: Literal["auto", "low", "high", "original"] | None = None


class InputFile(FileSource):
    type: Literal["input_file"]


class InputMessage(Lenient):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: (
        Text
        | Annotated[list[Annotated[InputText | InputImage | InputFile | AudioPart, Field(discriminator="type")]], PARTS]
    )


class FunctionCall(Lenient):
    type: Literal["function_call"]
    call_id: CallId
    name: ToolName
    arguments: Text


class FunctionOutput(Lenient):
    type: Literal["function_call_output"]
    call_id: CallId
    output: Text | Annotated[list[InputText], PARTS]


class Reasoning(Lenient):
    """Accepted and ignored: the reasoning of one model is never shown to another."""

    type: Literal["reasoning"]


def _kind(item: Any) -> str:
    return str((item.get("type") if isinstance(item, dict) else getattr(item, "type", None)) or "message")  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


Item = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionOutput, Tag("function_call_output")]
    | Annotated[Reasoning, Tag("reasoning")],
    Discriminator(_kind),
]


class FunctionTool(Lenient):
    type: Literal["function"]
    name: ToolName
    description: str | None = None
    parameters: Parameters | None = None
    strict: bool | None = None


class TextOptions(BaseModel):
    """Echoed as it was sent."""

    model_config = ConfigDict(extra="allow", strict=True)
    format: JsonObject | None = None


class ConversationId(Lenient):
    id: Annotated[str, Field(max_length=256)]


class ResponseRequest(SamplingHints):
    model: Annotated[str, Field(max_length=256)] | None = None
    input: Text | Annotated[list[Item], Field(min_length=1, max_length=10_000, fail_fast=True)]
    instructions: Text | None = None
    stream: bool | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: TokenCount | None = None
    text: TextOptions | None = None
    previous_response_id: Annotated[str, Field(max_length=256)] | None = None
    conversation: Annotated[str, Field(max_length=256)] | ConversationId | None = None
    store: bool | None = None
    background: bool | None = None
    metadata: JsonObject | None = None
    include: Annotated[list[str], Field(max_length=16, fail_fast=True)] | None = None
    reasoning: JsonObject | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: str | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    stream_options: JsonObject | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    max_tool_calls: int | None = None

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, ConversationId) else self.conversation


class NewConversation(RequestModel):
    metadata: JsonObject | None = None
    items: Annotated[list[Item], Field(max_length=20, fail_fast=True)] | None = None


class ConversationObject(BaseModel):
    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: JsonObject = Field(default_factory=dict[str, Any])


class Deleted(BaseModel):
    id: str
    object: str
    deleted: bool = True


class ResponseAnswer(BaseModel):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed"]
    error: JsonObject | None = None
    incomplete_details: JsonObject | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    model: str
    output: list[JsonObject] = Field(default_factory=list[JsonObject])
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    temperature: float | None = None
    text: JsonObject = Field(default_factory=lambda: {"format": {"type": "text"}})
    tool_choice: Any = "auto"
    tools: list[JsonObject] = Field(default_factory=list[JsonObject])
    top_p: float | None = None
    truncation: str = "disabled"
    background: bool = False
    store: bool = True
    conversation: JsonObject | None = None
    reasoning: JsonObject | None = None
    service_tier: str | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    top_logprobs: int | None = None
    max_tool_calls: int | None = None
    usage: JsonObject | None = None
    metadata: JsonObject = Field(default_factory=dict[str, Any])
