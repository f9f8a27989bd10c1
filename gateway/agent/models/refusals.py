"""Classifies an endpoint's error. Pure: takes status, body and headers, returns the kind of refusal."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"maximum (?:context|prompt) length (?:is|of) ([\d,]+)",
        r"([\d,]+) maximum context length",
        r"tokens? > ([\d,]+) maximum",
        r"tokens allowed \(?([\d,]+)",
        r"context (?:size|length|window)\D{0,12}([\d,]+)",
        r"n_ctx\D{1,6}([\d,]+)",
        r"tokens` must be <= ([\d,]+)",
    )
)
_OVERFLOW = re.compile(
    r"context[_ ](?:length|size|window)|maximum prompt length|prompt is too long|input (?:is|was) too long|too many tokens"
    r"|input token count|max_new_tokens` must be|reduce the length|too large for model|request too large|exceeds? the (?:context|token)"
    r"|context the overflows|request entity too large|payload too large",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing|credit|payment", re.IGNORECASE)
_KEY = re.compile(r"api[_ -]?key|authenticat|unauthorized", re.IGNORECASE)
_MODEL = re.compile(
    r"model[_ ](?:id|name|not[_ ]found)|\bmodel\b.{0,80}(?:not exist|not found|not a valid)|invalid model",
    re.IGNORECASE,
)
_TRANSCRIPT = re.compile(
    r"messages?\b|tool_call|\broles?\b|content|conversation|\bturns?\b|image|prompt|thought_signature|roles must alternate",
    re.IGNORECASE,
)
_SCHEMA = re.compile(r"schema for function|function_parameters|invalid 'tools'", re.IGNORECASE)
_SECRET = re.compile(r"\b(?:(?:sk|gsk|xai|key)[-_]|AIza)[-_A-Za-z0-9*.]{4,}")
_SHOWN_CHARACTERS = 300


class RefusalKind(StrEnum):
    AGAIN = "again"  # later, the same request may do
    OVERFLOW = "overflow"
    TRANSCRIPT = "transcript"
    REFUSED = "refused"


def classify(status: int, error_text: str) -> RefusalKind:
    """Returns the kind of refusal. `error_text`: message, code, type and param of the error in one text."""
    if status in (400, 413, 422, 500) and is_overflow(status, error_text):
        return RefusalKind.OVERFLOW
    if status in (408, 409, 425) or status >= 500:
        return RefusalKind.AGAIN
    if status == 429:  # waiting does not bring back a used-up quota
        return RefusalKind.REFUSED if _QUOTA.search(error_text) else RefusalKind.AGAIN
    if status in (400, 422) and _is_about_transcript(error_text):
        return RefusalKind.TRANSCRIPT
    return RefusalKind.REFUSED


def is_overflow(status: int, error_text: str) -> bool:
    return status == 413 or bool(_OVERFLOW.search(error_text))


def _is_about_transcript(error_text: str) -> bool:
    # These speak of messages, prompts and content as well, and are no fault of the conversation.
    if _KEY.search(error_text) or _MODEL.search(error_text) or _SCHEMA.search(error_text):
        return False
    return bool(_TRANSCRIPT.search(error_text))


def named_limit(error_text: str) -> int | None:
    """Returns the window in tokens that an overflow names."""
    for pattern in _LIMITS:
        if match := pattern.search(error_text):
            return int(match.group(1).replace(",", "")) or None
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that the endpoint asks to wait. A date counts from the answer's own date, so that our clock may be wrong."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after", "")
    if (seconds := _number(asked)) is not None:
        return seconds
    try:
        until = parsedate_to_datetime(asked)
        answered = parsedate_to_datetime(headers["date"]) if headers.get("date") else datetime.now(UTC)
        return max((until - answered).total_seconds(), 0.0)
    except (ValueError, TypeError):  # no date at all, or one without a zone
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def describe_refusal(host: str, model: str, status: int, said: str, api_key: str) -> str:
    """Returns what the operator reads: what happened, what to do, and the endpoint's own words."""
    match status:
        case _ if 300 <= status < 400:
            what = f"{host} redirects to another address ({status}). Write the right one into model.base_url."
        case 401 | 403:
            what = f"{host} does not accept the API key for {model} ({status}). Check model.api_key."
        case 402:
            what = f"The account at {host} has no credit left ({status})."
        case 429:
            what = f"The quota at {host} is used up or its rate limit is reached ({status})."
        case 404 | 405:
            what = f"{host} does not know {model} ({status}). Check model.name and model.base_url."
        case 413:
            what = f"The request is too large for {model} at {host} ({status})."
        case _ if status >= 500:
            what = f"{host} has trouble of its own ({status})."
        case _:
            what = f"{host} refuses the request for {model} ({status})."
    said = without_secrets(said[: 4 * _SHOWN_CHARACTERS], api_key).strip()[:_SHOWN_CHARACTERS]
    return f"{what} It says: {said}" if said else what


def without_secrets(text: str, api_key: str) -> str:
    if len(api_key) >= 4:
        text = text.replace(api_key, "[key]")
    return _SECRET.sub("[key]", text)
