"""What the model is told of messages as other people's clients send them: forwards, tables, cards, orders, contents newer than our libraries.

`tests/fixtures/<platform>/*.json` holds an event each, in the form of the platform's published schema, and what it has to become.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.slack.normalize import SlackBot
from adapters.slack.normalize import normalize as slack
from sessions.messages import Inbound, Quote

FIXTURES = Path(__file__).parents[2] / "fixtures"


def from_slack(event: Any) -> list[Inbound]:
    body = {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event}
    return slack(body, SlackBot(team="T1", user="UBOT"))


READ: dict[str, Callable[[Any], list[Inbound]]] = {"slack": from_slack}
PAYLOADS = [path for name in READ for path in sorted((FIXTURES / name).glob("*.json"))]


@pytest.mark.parametrize("path", PAYLOADS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_others_send(path: Path) -> None:
    payload = json.loads(path.read_text())
    (inbound,) = READ[path.parent.name](payload["event"])
    assert_like(inbound, payload["expect"])


def assert_like(found: Inbound | Quote, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        given = getattr(found, name)
        if isinstance(given, Quote):
            assert_like(given, value)
        elif name == "attachments":
            assert [file.name for file in given] == value
        elif name == "address":
            assert {key: getattr(given, key) for key in value} == value
        else:
            assert given == value, name
