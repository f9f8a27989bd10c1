"""Turns refusals of the Cloud API into errors of the contract. No message holds the access token."""

from typing import Any

from adapters.base import DeliveryError, TryLater, Unauthorized, Undeliverable
from adapters.payload import Json, part

_WAIT = {4: 60.0, 80007: 60.0, 130429: 5.0, 131048: 60.0, 131056: 12.0, 133016: 60.0}
"""Codes of rate limits, and the seconds to wait. 131056: too many messages to one person, who may get one every six seconds.
One that is refused counts too: tried again after six seconds, it would be refused for ever."""
_OUTAGE = {1, 2, 131000, 131016, 131057, 133004, 135000}
_LATER_KNOWN = {
    131026: "WhatsApp could not deliver it: the person has no WhatsApp, an old version, or has not accepted the terms.",
    131047: "More than 24 hours have passed since this person last wrote. WhatsApp delivers nothing but templates until they write again.",
    131049: "WhatsApp held it back, to keep the person from too many messages.",
    131050: "The person does not want messages from this number any more.",
    130472: "WhatsApp held it back: the person's number is part of an experiment of Meta.",
    131051: "WhatsApp does not know this kind of message.",
}


class WhatsAppRefusal(Undeliverable):
    """The Cloud API refuses this call as it is."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def refusal(status: int, body: Any, retry_after: str | None) -> DeliveryError:
    """Returns the error of an answer that is no success."""
    error = part(body, "error")
    code = error.get("code")
    if isinstance(code, int):
        return _known(status, code, error, retry_after)
    if status >= 500:
        return TryLater(f"WhatsApp has an outage ({status}).", after=_seconds(retry_after))
    if status == 429:
        return TryLater("WhatsApp asks to wait.", after=_seconds(retry_after) or 5.0)
    return TryLater(f"WhatsApp gave an answer that cannot be read ({status}).", ambiguous=True)


def _known(status: int, code: int, error: Json, retry_after: str | None) -> DeliveryError:
    # 190: the access token; 102: the session. 3, 10 and 200 to 299: permissions.
    if code in {190, 102} or (code == 0 and status == 401):
        return Unauthorized(
            "WhatsApp does not accept the access token. Make one for a system user in Meta's Business settings, which does not "
            "expire, and set platforms.whatsapp.access_token."
        )
    if code in {3, 10} or 200 <= code <= 299:
        return Unauthorized(
            "The access token lacks a permission. Give its system user the app and the WhatsApp account, and make the token with "
            "whatsapp_business_messaging and whatsapp_business_management."
        )
    if code in _WAIT:
        return TryLater("WhatsApp asks to wait.", after=_seconds(retry_after) or _WAIT[code])
    if code in _OUTAGE or status >= 500:
        return TryLater(f"WhatsApp has an outage ({code}).", after=_seconds(retry_after))
    return WhatsAppRefusal(_LATER_KNOWN.get(code) or f"WhatsApp refuses this: {_details(error)} ({code})", code)


def failure_reason(error: Json) -> str:
    """Returns why a message that was accepted did not arrive."""
    code = error.get("code")
    known = _LATER_KNOWN.get(code) if isinstance(code, int) else None
    return known or f"WhatsApp could not deliver it: {_details(error)} ({code})"


def _details(error: Json) -> str:
    said = part(error, "error_data").get("details") or error.get("message") or error.get("title") or "no reason given"
    return str(said).strip().rstrip(".")[:300]


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after and retry_after.isdigit() else None
