"""A place for a tool to work in."""

from pathlib import Path
from typing import Any

import pytest

from gateway.agent.tools.registry import ToolContext
from sessions import store
from sessions.db import Database
from sessions.keys import SessionKey
from sessions.records import Source


def started(database: Database, chat: str, ns: str) -> Any:
    key = SessionKey.parse(f"agent:main:telegram:dm:{chat}")
    return database.write_now(store.start, key, 1, source=Source.TELEGRAM, ns=ns)


@pytest.fixture
def place(home: Path, sqlite: Database, clock) -> ToolContext:
    return ToolContext(
        session=started(sqlite, "7", "owner"),
        database=sqlite,
        workspace=home / "workspace" / "owner",
        skills=home / "skills",
        outgoing=home / "outgoing",
        clock=clock,
        idem_key="k",
        run_id="r",
    )
