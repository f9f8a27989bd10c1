"""The words of deployments, threads, messages and runs."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from gateway.api.contract import Asked, Words
from sessions.clock import iso
from sessions.deployments import Deployment, Thread
from sessions.records import Message, Role, Run

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Prompt = Annotated[str, StringConstraints(max_length=100_000)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
CustomerId = Annotated[str, StringConstraints(max_length=256)]
CURSOR = r"^[0-9]{1,15}\.[0-9a-z_]{1,64}$"


class Page(Asked):
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: Annotated[str, Field(pattern=CURSOR)] | None = None

    @property
    def after(self) -> tuple[int, str] | None:
        if self.cursor is None:
            return None
        at, _, last = self.cursor.partition(".")
        return int(at), last


class NewDeployment(Asked):
    name: Name
    customer_id: CustomerId | None = None
    system_prompt: Prompt | None = None
    model: ModelName | None = None


class DeploymentChange(Asked):
    name: Name | None = None
    customer_id: CustomerId | None = None
    system_prompt: Prompt | None = None
    model: ModelName | None = None


class EventsAt(Words):
    transport: Literal["sse"] = "sse"
    url: str


class DeploymentRow(Words):
    deployment_id: str
    name: str
    status: Literal["ready"] = "ready"
    customer_id: str | None
    system_prompt: str | None
    model: str | None
    thread_id: str | None
    created_at: str
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


class DeploymentList(Words):
    data: list[DeploymentRow]
    next_cursor: str | None


class NewThread(Asked):
    title: Name | None = None


class ThreadChange(Asked):
    title: Name


class NewThreadRow(Words):
    thread_id: str
    deployment_id: str
    title: str | None
    status: str = "idle"
    created_at: str


class ThreadRow(Words):
    thread_id: str
    title: str | None
    status: str
    message_count: int
    last_activity_at: str

    @classmethod
    def of(cls, found: Thread) -> "ThreadRow":
        return cls(**row_of(found))


def row_of(found: Thread) -> dict[str, Any]:
    return {
        "thread_id": found.id,
        "title": found.title,
        "status": found.status or "idle",
        "message_count": found.message_count,
        "last_activity_at": iso(found.last_activity_at),
    }


class ThreadList(Words):
    data: list[ThreadRow]
    next_cursor: str | None


class MessageRow(Words):
    role: Literal["user", "agent"]
    content: str
    run_id: str | None
    created_at: str

    @classmethod
    def of(cls, message: Message) -> "MessageRow":
        return cls(
            role="user" if message.role is Role.USER else "agent",
            content=message.content or "",
            run_id=message.run_id,
            created_at=iso(message.created_at),
        )


class WholeThread(ThreadRow):
    deployment_id: str
    created_at: str
    messages: list[MessageRow]


class Upload(Asked):
    name: Annotated[str, Field(min_length=1, max_length=255)]
    type: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]{1,64}/[A-Za-z0-9_.+-]{1,64}$")]
    url: Annotated[str, Field(pattern=r"^(https?://[^\s/]+|data:)", max_length=30_000_000)] | None = None
    data: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "Upload":
        if (self.url is None) == (self.data is None):
            raise ValueError("give either url or data")
        return self


class NewMessage(Asked):
    content: Annotated[str, Field(max_length=10_000_000)]
    thread_id: Annotated[str, Field(pattern=r"^(new|thread_[0-9a-f]{24})$")] | None = None
    attachments: Annotated[list[Upload], Field(max_length=10)] | None = None


class TakenIn(Words):
    run_id: str
    thread_id: str
    status: str


class RunUsage(Words):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class RunRow(Words):
    run_id: str
    thread_id: str | None
    status: str
    stop_reason: str | None
    created_at: str
    updated_at: str
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


class Steering(Asked):
    response: Annotated[str, Field(min_length=1, max_length=262_144)]
    request_id: Annotated[str, Field(pattern=r"^[0-9]{1,15}$")] | None = None


class Following(Asked):
    thread_id: Annotated[str, Field(pattern=r"^thread_[0-9a-f]{24}$")] | None = None
    run_id: Annotated[str, Field(pattern=r"^run_[0-9a-f]{24}$")] | None = None
