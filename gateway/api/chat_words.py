"""The words of Chat Completions, as far as they are understood. Fields that are not named here are let through unread."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=10_000_000)]
Url = Annotated[str, Field(pattern=r"^(https?://[^\s/]+|data:)")]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
CallId = Annotated[str, Field(min_length=1, max_length=256)]
Any_ = dict[str, Any]


class Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class TextPart(Lenient):
    type: Literal["text"]
    text: Text


class ImageUrl(Lenient):
    url: Url


class ImagePart(Lenient):
    type: Literal["image_url"]
    image_url: ImageUrl


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class SystemMessage(Lenient):
    role: Literal["system", "developer"]
    content: Text | list[TextPart]


class UserMessage(Lenient):
    role: Literal["user"]
    content: Text | Annotated[list[Part], Field(min_length=1)]


class Function(Lenient):
    name: ToolName
    arguments: Text


class ToolCall(BaseModel):
    """Unknown fields go back to the model as they came."""

    model_config = ConfigDict(extra="allow", strict=True)
    id: CallId
    type: Literal["function"] = "function"
    function: Function


class AssistantMessage(Lenient):
    role: Literal["assistant"]
    content: Text | list[TextPart] | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None


class ToolMessage(Lenient):
    role: Literal["tool"]
    content: Text | list[TextPart]
    tool_call_id: CallId


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class Parameters(BaseModel):
    """A JSON Schema of an object; what it says is for the model."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: Literal["object"]


class FunctionSpec(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    name: ToolName
    description: str | None = None
    parameters: Parameters | None = None


class ToolSpec(Lenient):
    type: Literal["function"]
    function: FunctionSpec


class StreamOptions(Lenient):
    include_usage: bool | None = None


class ChatRequest(Lenient):
    model: Annotated[str, Field(max_length=256)] | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=10_000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[ToolSpec], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | Any_ | None = None
    parallel_tool_calls: bool | None = None
    response_format: Any_ | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    reasoning_effort: str | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]


class AnswerMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[Any_] | None = None


class Choice(BaseModel):
    index: int = 0
    message: AnswerMessage
    finish_reason: str
    logprobs: None = None


class ChatAnswer(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class ModelRow(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "hermes"


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelRow]
