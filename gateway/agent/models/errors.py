"""Describes one failed call to an endpoint, and makes the error that is raised when it cannot be repeated."""

from collections.abc import Mapping
from enum import StrEnum
from typing import cast

from gateway.agent.models.interface import JSON, ContextOverflow, ModelError, ModelRefused, ModelUnreachable
from gateway.agent.models.quirks import RefusalKind, classify, describe_refusal, named_limit, retry_after


class CallOutcome(StrEnum):
    ANSWERED = "answered"
    LIMITED = "limited"  # 429
    UNREACHABLE = "unreachable"  # 5xx, timeouts, broken connections and answers
    ADAPTED = "adapted"  # refused once, then asked in a way that the endpoint understands
    REFUSED = "refused"
    OVERFLOW = "overflow"


class CallFailed(Exception):
    """One call failed. `error_text`: everything that the endpoint said, for learning; `str()` is for the operator.

    `wait`: seconds that it asked for. `silent`: the call ran into its timeout.
    """

    def __init__(
        self,
        message: str,
        kind: RefusalKind,
        *,
        status: int = 0,
        error_text: str = "",
        wait: float | None = None,
        silent: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.error_text = error_text
        self.wait = wait
        self.silent = silent

    @property
    def outcome(self) -> CallOutcome:
        match self.kind:
            case RefusalKind.AGAIN:
                return CallOutcome.LIMITED if self.status == 429 else CallOutcome.UNREACHABLE
            case RefusalKind.OVERFLOW:
                return CallOutcome.OVERFLOW
            case _:
                return CallOutcome.REFUSED

    def as_model_error(self) -> ModelError:
        match self.kind:
            case RefusalKind.AGAIN:
                return ModelUnreachable(str(self))
            case RefusalKind.OVERFLOW:
                return ContextOverflow(str(self), limit=named_limit(self.error_text))
            case _:
                about = self.kind is RefusalKind.TRANSCRIPT
                return ModelRefused(str(self), status=self.status or None, about_transcript=about)

    def as_audio_error(self) -> ModelError:
        """Returns the same failure for a call that had a recording and no transcript."""
        if self.kind is RefusalKind.AGAIN:
            return ModelUnreachable(str(self))
        return ModelRefused(str(self), status=self.status or None)


_LOOKED_AT = 8_192
"""Characters of an error that are searched for what it means."""


def refusal(host: str, model: str, api_key: str, status: int, body: object, headers: Mapping[str, str]) -> CallFailed:
    """Returns the error that the endpoint put into words."""
    message_text = _message_in(body)
    error_text = " ".join([message_text, *_codes_in(body)])[:_LOOKED_AT]
    message = describe_refusal(host, model, status, message_text, api_key)
    return CallFailed(
        message, classify(status, error_text), status=status, error_text=error_text, wait=retry_after(headers)
    )


def _message_in(body: object) -> str:
    match body:
        case {"message": str(message)} | {"error": {"message": str(message)}} | {"error": str(message)}:
            return message
        case None:
            return ""
        case _:
            return str(body)


def code_in(body: object) -> int | None:
    match body:
        case {"code": int(code)}:
            return code
        case _:
            return None


def _codes_in(body: object) -> list[str]:
    if not isinstance(body, dict):
        return []
    fields = cast(JSON, body)
    return [f"{name} {fields[name]}" for name in ("code", "type", "param", "n_ctx") if fields.get(name)]


def combined_error(failures: list[ModelError]) -> ModelError:
    """Returns the error of all models that were tried: unreachable while one of them was only that, because trying again later may help."""
    message = " ".join(dict.fromkeys(str(failure) for failure in failures))
    if any(isinstance(failure, ModelUnreachable) for failure in failures):
        return ModelUnreachable(message)
    first = failures[0]
    return ModelRefused(message, status=first.status if isinstance(first, ModelRefused) else None)
