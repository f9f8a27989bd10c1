import pytest

from sessions.db import Database
from tests.conftest import HandClock
from tests.integration.gateway.intake_in_process import IntakeHarness


@pytest.fixture
def intake(database: Database, clock: HandClock) -> IntakeHarness:
    return IntakeHarness(database, clock)


@pytest.fixture
def sqlite_intake(sqlite: Database, clock: HandClock) -> IntakeHarness:
    """For what the kind of database cannot matter to."""
    return IntakeHarness(sqlite, clock)
