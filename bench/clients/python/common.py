"""Where the gateway is, and how a check tells what it found."""

import os

URL = os.environ["HERMES_URL"]
KEY = os.environ["HERMES_KEY"]
MODEL = "practice"
os.environ |= {"OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": KEY}


def expect(found: object, what: str) -> None:
    """Ends the check with what was missing."""
    if not found:
        raise SystemExit(f"missing: {what}")
