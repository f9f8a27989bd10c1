"""Formats short texts that commands print, without the control characters of what came from outside."""

import json
import re
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def one_line(text: str, width: int | None = None) -> str:
    line = " ".join(clean(text).split())
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def as_json(data: Any) -> str:
    # JSON escapes some of them by itself.
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(data, indent=2, ensure_ascii=False))
