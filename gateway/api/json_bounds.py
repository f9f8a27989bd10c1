"""How many values a JSON text holds, counted before anything is built of them: a million empty objects in 3 MB became gigabytes."""

import re

from gateway.api.errors import invalid

MOST_VALUES = 100_000
_NEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{,]', re.DOTALL)


def require_few_values(sent: bytes) -> None:
    """Raises ApiError. Looks closely only where the text could hold so many."""
    if sent.count(b",") + sent.count(b"[") + sent.count(b"{") <= MOST_VALUES:
        return
    found = 0
    for match in _NEXT.finditer(sent):
        found += sent[match.start()] != 0x22  # commas and brackets inside of texts are no values
        if found > MOST_VALUES:
            raise invalid(
                f"The body holds more than {MOST_VALUES:,} values. Send less at once.", code="too_many_values"
            )
