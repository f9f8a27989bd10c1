"""What the daemon tells of its platforms."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from gateway.chats.runner import PlatformHealth, PlatformState
from gateway.chats.supervisor import PlatformSupervisor


def test_times_are_told_as_iso_with_offset() -> None:
    nobody: Any = None
    chats = PlatformSupervisor(nobody, nobody)
    health = PlatformHealth(state=PlatformState.CONNECTED, since=1_750_000_000.5)
    platform: Any = SimpleNamespace(current_health=lambda: health, health=health)
    chats.running["telegram"] = platform
    told = chats.states()["telegram"]
    assert datetime.fromisoformat(told["since"]) == datetime.fromtimestamp(1_750_000_000.5, UTC)
    assert told["last_success"] is None
