"""Request and response bodies of deployments, threads, messages and runs."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator

from gateway.api.http.body_files import Base64, FileUrl
from gateway.api.http.endpoint import PARAMETERS, RequestModel, ResponseModel
from sessions.clock import iso
from sessions.deployments import Deployment, Thread, Turn
from sessions.records import Run, RunStatus, StopReason

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Prompt = Annotated[str, StringConstraints(max_length=100_000)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
CustomerId = Annotated[str, StringConstraints(max_length=256)]
Cursor = Annotated[str, Field(pattern=r"^[0-9]{1,15}\.[0-9a-z_]{1,64}$")]
DeploymentId = Annotated[str, Field(pattern=PARAMETERS["deployment_id"])]
ThreadId = Annotated[str, Field(pattern=PARAMETERS["thread_id"])]
RunId = Annotated[str, Field(pattern=PARAMETERS["run_id"])]
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
ThreadStatus = Literal["idle", "running", "waiting_on_human"]


class Page(RequestModel):
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: Cursor | None = None

    @property
    def after(self) -> tuple[int, str] | None:
        if self.cursor is None:
            return None
        at, _, last = self.cursor.partition(".")
        return int(at), last


class NewDeployment(RequestModel):
    name: Name
    customer_id: CustomerId | None = None
    system_prompt: Prompt | None = None
    model: ModelName | None = None


class DeploymentChange(RequestModel):
    name: Name | None = None
    customer_id: CustomerId | None = None
    system_prompt: Prompt | None = None
    model: ModelName | None = None


class EventsAt(ResponseModel):
    transport: Literal["sse"] = "sse"
    url: str


class DeploymentRow(ResponseModel):
    deployment_id: DeploymentId
    name: str
    status: Literal["ready"] = "ready"
    customer_id: str | None
    system_prompt: str | None
    model: str | None
    thread_id: ThreadId | None
    created_at: Time
    events: EventsAt

    @classmethod
    def of(cls, found: Deployment) -> "DeploymentRow":
        return cls(
            deployment_id=found.id,
            name=found.name,
            customer_id=found.customer_id,
            system_prompt=found.system_prompt,
            model=found.model,
            thread_id=found.default_thread,
            created_at=iso(found.created_at),
            events=EventsAt(url=f"/v1/deployments/{found.id}/events"),
        )


class DeploymentList(ResponseModel):
    data: list[DeploymentRow]
    next_cursor: Cursor | None


class NewThread(RequestModel):
    title: Name | None = None


class ThreadChange(RequestModel):
    title: Name


class NewThreadRow(ResponseModel):
    thread_id: ThreadId
    deployment_id: DeploymentId
    title: str | None
    status: ThreadStatus
    created_at: Time

    @classmethod
    def of(cls, found: Thread, deployment_id: str) -> "NewThreadRow":
        return cls(
            thread_id=found.id,
            deployment_id=deployment_id,
            title=found.title,
            status=_status(found),
            created_at=iso(found.created_at),
        )


def _status(found: Thread) -> ThreadStatus:
    match found.status:
        case RunStatus.RUNNING | RunStatus.WAITING:
            return found.status.value
        case _:
            return "idle"


class ThreadRow(ResponseModel):
    thread_id: ThreadId
    title: str | None
    status: ThreadStatus
    message_count: int
    last_activity_at: Time

    @classmethod
    def of(cls, found: Thread) -> "ThreadRow":
        return cls(**row_of(found))


def row_of(found: Thread) -> dict[str, Any]:
    return {
        "thread_id": found.id,
        "title": found.title,
        "status": _status(found),
        "message_count": found.message_count,
        "last_activity_at": iso(found.last_activity_at),
    }


class ThreadList(ResponseModel):
    data: list[ThreadRow]
    next_cursor: Cursor | None


class MessageRow(ResponseModel):
    role: Literal["user", "agent"]
    content: str
    run_id: RunId | None
    created_at: Time

    @classmethod
    def of(cls, turn: Turn) -> "MessageRow":
        role = "agent" if turn.by_agent else "user"
        return cls(role=role, content=turn.content, run_id=turn.run_id, created_at=iso(turn.created_at))


class ChangedThread(ThreadRow):
    deployment_id: DeploymentId
    created_at: Time

    @classmethod
    def with_facts(cls, found: Thread, deployment_id: str, **more: Any) -> Self:
        return cls(**row_of(found), deployment_id=deployment_id, created_at=iso(found.created_at), **more)


class WholeThread(ChangedThread):
    messages: list[MessageRow]


def _only(field: str, other: str) -> dict[str, Any]:
    return {"required": [field], "properties": {field: {"type": "string"}, other: {"type": "null"}}}


class PostedFile(RequestModel):
    model_config = ConfigDict(json_schema_extra={"oneOf": [_only("url", "data"), _only("data", "url")]})
    name: Annotated[str, Field(min_length=1, max_length=255)]
    type: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,64}/[A-Za-z0-9_.+-]{1,64}$")]
    url: FileUrl | None = None
    data: Base64 | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "PostedFile":
        if (self.url is None) == (self.data is None):
            raise ValueError("give either url or data")
        return self


class PostedMessage(RequestModel):
    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {"content": {"minLength": 1}}},
                {"required": ["attachments"], "properties": {"attachments": {"type": "array", "minItems": 1}}},
            ]
        }
    )
    content: Annotated[str, Field(max_length=10_000_000)]
    thread_id: Annotated[str, Field(pattern=r"^(new|thread_[0-9a-f]{24})$")] | None = None
    attachments: Annotated[list[PostedFile], Field(max_length=20, fail_fast=True)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "PostedMessage":
        if not self.content and not self.attachments:
            raise ValueError("the message is empty")
        return self


class AcceptedMessage(ResponseModel):
    run_id: RunId
    thread_id: ThreadId
    status: RunStatus


class RunUsage(ResponseModel):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class RunRow(ResponseModel):
    run_id: RunId
    thread_id: ThreadId | None
    status: RunStatus
    stop_reason: StopReason | None
    created_at: Time
    updated_at: Time
    usage: RunUsage
    error: str | None

    @classmethod
    def of(cls, run: Run) -> "RunRow":
        used = RunUsage(
            input_tokens=run.input_tokens,
            output_tokens=run.output_tokens,
            total_tokens=run.input_tokens + run.output_tokens,
        )
        return cls(
            run_id=run.id,
            thread_id=run.thread_id,
            status=run.status,
            stop_reason=run.stop_reason,
            created_at=iso(run.created_at),
            updated_at=iso(run.updated_at),
            usage=used,
            error=run.error,
        )


class Steering(RequestModel):
    response: Annotated[str, Field(min_length=1, max_length=262_144)]
    request_id: Annotated[str, Field(pattern=r"^[0-9]{1,15}$")] | None = None


class EventsQuery(RequestModel):
    thread_id: ThreadId | None = None
    run_id: RunId | None = None
