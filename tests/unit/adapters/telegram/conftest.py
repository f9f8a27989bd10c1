from collections.abc import AsyncIterator

import pytest

from tests.fakes.telegram_server import TelegramServer
from tests.fakes.telegram_world import TelegramChat, User
from tests.unit.adapters.telegram.wire import TelegramGateway


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(check_floods=False) as server:
        yield server
        assert server.violations == []


@pytest.fixture
async def gateway(server: TelegramServer) -> AsyncIterator[TelegramGateway]:
    gateway = TelegramGateway(server)
    yield gateway
    await gateway.stop()
    await gateway.adapter.close()


@pytest.fixture
def ada(server: TelegramServer) -> User:
    return server.user(7, "Ada", "ada")


@pytest.fixture
def dm(server: TelegramServer, ada: User) -> TelegramChat:
    return server.dm(ada)
