"""Removes secrets from log lines, errors and events. Imports little, because every command may have to report an error."""

import re
from collections.abc import Iterable

_PATTERNS = re.compile(
    r"(?P<telegram>(?<!\d)\d{6,12}:[A-Za-z0-9_-]{30,})"
    r"|(?P<bearer>(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,})"
    r"|(?P<known>\b(?:sk|xox[a-z]|xapp|ghp|hk)[-_][-_A-Za-z0-9]{10,}|\bEAA\w{20,})"
    r"|(?P<url>(?<=://)[^/\s]+(?=@))"
)
_secrets: set[str] = set()


def hide(secrets: Iterable[str]) -> None:
    """Replaces these values from now on in every log line, error and event."""
    # A shorter one would black out ordinary words.
    _secrets.update(secret for secret in secrets if len(secret) >= 6)


def redact(text: str) -> str:
    for secret in _secrets:
        if secret in text:
            text = text.replace(secret, "****")
    return _PATTERNS.sub("****", text)
