import pytest

from sessions.db import Database
from tests.conftest import HandClock
from tests.integration.gateway.intake_in_process import Door


@pytest.fixture
def door(database: Database, clock: HandClock) -> Door:
    return Door(database, clock)


@pytest.fixture
def quick(sqlite: Database, clock: HandClock) -> Door:
    """For what the kind of database cannot matter to."""
    return Door(sqlite, clock)
