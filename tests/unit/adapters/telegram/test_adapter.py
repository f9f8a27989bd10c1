"""What the adapter is, and what it says about itself. The real client library against a Bot API at the wire."""

from adapters.base import (
    AnswersTaps,
    ChecksSetup,
    EditsMessages,
    FetchesMedia,
    OffersCommands,
    Reacts,
    ReceivesWebhooks,
    ReportsLiveness,
    ShowsDrafts,
    ShowsTyping,
)
from sessions.keys import Sender
from tests.unit.adapters.telegram.wire import Gateway


def test_it_has_every_capability_of_the_contract(gateway: Gateway) -> None:
    capabilities = (
        ShowsTyping,
        ShowsDrafts,
        Reacts,
        EditsMessages,
        AnswersTaps,
        FetchesMedia,
        ReceivesWebhooks,
        OffersCommands,
        ChecksSetup,
        ReportsLiveness,
    )
    assert all(isinstance(gateway.adapter, capability) for capability in capabilities)


async def test_commands_are_offered_to_allowed_users_only(server, gateway, dm) -> None:
    server.commands["default"] = [{"command": "old", "description": "old"}]
    await gateway.adapter.offer_commands([("new", "begin anew")], [Sender(id="7"), Sender(id="8")])
    assert server.commands == {"chat:7": [{"command": "new", "description": "begin anew"}]}
    await gateway.adapter.offer_commands([("new", "begin anew")], [Sender(id="*")])
    assert list(server.commands) == ["all_private_chats"]


async def test_check_says_who_we_are(gateway) -> None:
    assert await gateway.adapter.check() == "@hermes_bot (Hermes)"
