"""Random ids that cannot be guessed."""

import re
import secrets
from datetime import UTC, datetime

_SESSION = re.compile(r"[0-9]{8}_[0-9]{6}_[0-9a-f]{8}")


def session_id(now: int) -> str:
    return f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d_%H%M%S}_{secrets.token_hex(4)}"


def is_session_id(text: str) -> bool:
    return _SESSION.fullmatch(text) is not None


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"
