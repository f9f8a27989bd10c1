"""Request and response bodies of Chat Completions, and below them those of the Responses API."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from gateway.api.http.body_files import Base64, Contents, FileUrl
from gateway.api.http.endpoint import RequestModel
from gateway.api.http.parsing import as_integer
from gateway.api.openai.agent_calls import FinishReason


def _not(value: bool) -> bool:
    if value:
        raise ValueError("this is not supported here")
    return value


NotSupported = Annotated[bool, AfterValidator(_not), WithJsonSchema({"type": "boolean", "const": False})]
Text = Annotated[str, Field(max_length=10_000_000)]
TokenCount = Annotated[int, Field(ge=1, le=10_000_000), BeforeValidator(as_integer)]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
CallId = Annotated[str, Field(min_length=1, max_length=256)]
JsonObject = dict[str, Any]
PARTS = Field(max_length=2_000, fail_fast=True)
"""Lists stop at their first mistake: a million mistakes would have to be described one by one."""


class Lenient(BaseModel):
    """Unknown fields are ignored: clients of newer versions send some in messages and their parts."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)


class Known(BaseModel):
    """A field that is not named here would be ignored in silence; so it is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


Whole = Annotated[int, Field(ge=-(2**31), lt=2**31), BeforeValidator(as_integer)]


class SamplingHints(Known):
    """Nothing in an answer depends on them that a caller relies on, and only some endpoints know them. They go on to the endpoint; what it
    does not take is left out, and the header `Warning` names it.
    """

    top_k: Whole | None = None
    top_a: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    tfs_z: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_last_n: Whole | None = None
    length_penalty: float | None = None
    mirostat: Whole | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    dynatemp_range: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    keep_alive: str | float | None = None
    cache_prompt: bool | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: JsonObject | None = None


HINTS = frozenset(SamplingHints.model_fields)


class TextPart(Lenient):
    type: Literal["text"]
    text: Text


class ImageUrl(Lenient):
    url: FileUrl
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(Lenient):
    type: Literal["image_url"]
    image_url: ImageUrl


def _has(field: str) -> JsonObject:
    return {"required": [field], "properties": {field: {"type": "string"}}}


class FileSource(Lenient):
    model_config = ConfigDict(json_schema_extra={"anyOf": [_has("file_data"), _has("file_url")]})
    filename: Annotated[str, Field(max_length=255)] | None = None
    file_data: Contents | None = None
    file_url: FileUrl | None = None

    @model_validator(mode="after")
    def _from_somewhere(self) -> "FileSource":
        if self.file_data is None and self.file_url is None:
            raise ValueError("give file_data or file_url")
        return self


class FilePart(Lenient):
    type: Literal["file"]
    file: FileSource


class AudioSource(Lenient):
    data: Base64
    format: Literal["wav", "mp3", "flac", "opus", "ogg", "m4a", "webm", "aac", "pcm16"]


class AudioPart(Lenient):
    type: Literal["input_audio"]
    input_audio: AudioSource


Part = Annotated[TextPart | ImagePart | FilePart | AudioPart, Field(discriminator="type")]


TextParts = Annotated[list[TextPart], PARTS]


class SystemMessage(Lenient):
    role: Literal["system", "developer"]
    content: Text | TextParts


class UserMessage(Lenient):
    role: Literal["user"]
    content: Text | Annotated[list[Part], Field(min_length=1), PARTS]


class Function(Lenient):
    name: ToolName
    arguments: Text


class CallerToolCall(BaseModel):
    """Unknown fields are kept, and go back to the model."""

    model_config = ConfigDict(extra="allow", strict=True)
    id: CallId
    type: Literal["function"] = "function"
    function: Function


class AssistantMessage(Lenient):
    role: Literal["assistant"]
    content: Text | TextParts | None = None
    tool_calls: Annotated[list[CallerToolCall], Field(max_length=128, fail_fast=True)] | None = None


class ToolMessage(Lenient):
    role: Literal["tool"]
    content: Text | TextParts
    tool_call_id: CallId


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class Parameters(BaseModel):
    """A JSON Schema of an object; what it says is for the model."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: Literal["object"] = "object"

    @model_validator(mode="before")
    @classmethod
    def _of_no_fields(cls, sent: Any) -> Any:
        """Several libraries write a function without parameters as an empty object, which endpoints refuse."""
        return {"type": "object", "properties": {}} if sent == {} else sent


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


class ChatRequest(SamplingHints):
    model: Annotated[str, Field(max_length=256)] | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=10_000, fail_fast=True)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[ToolSpec], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    response_format: JsonObject | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63), BeforeValidator(as_integer)] | None = None
    stop: str | Annotated[list[str], Field(max_length=16, fail_fast=True)] | None = None
    reasoning_effort: str | None = None
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    n: Annotated[int, Field(ge=1, le=1), BeforeValidator(as_integer)] | None = None
    logit_bias: dict[str, float] | None = None
    verbosity: str | None = None
    logprobs: NotSupported | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    modalities: list[Literal["text"]] | None = None
    user: str | None = None
    metadata: JsonObject | None = None
    store: bool | None = None
    service_tier: str | None = None
    prediction: JsonObject | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None


class UsageSchema(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]


class AnswerMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[JsonObject] | None = None


class Choice(BaseModel):
    index: int = 0
    message: AnswerMessage
    finish_reason: FinishReason
    logprobs: None = None


class ChatAnswer(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: UsageSchema


class ModelRow(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "hermes"


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelRow]


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
