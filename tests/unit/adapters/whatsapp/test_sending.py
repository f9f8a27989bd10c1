"""What the adapter does when Meta asks it to wait, against a server at the wire."""

import pytest

from adapters.base import TryLater
from adapters.testing.whatsapp import PAIR_BURST, WhatsAppServer
from adapters.whatsapp.adapter import WhatsApp
from adapters.whatsapp.config import WhatsAppConfig
from sessions.keys import Address, ChatKind
from sessions.messages import Outbound
from tests.conftest import HandClock


async def test_after_the_wait_a_message_to_the_same_person_goes_through() -> None:
    clock = HandClock(1_800_000_000)
    async with WhatsAppServer(clock=clock) as server:
        ann = server.person("491700000001", "Ann")
        server.says(server.dm(ann), ann, "hello")
        config = WhatsAppConfig.model_validate(
            {"access_token": server.token, "phone_number_id": server.phone_number_id, "api_base": server.api_base}
        )
        adapter = WhatsApp(config, clock=clock)
        to = Address(platform="whatsapp", kind=ChatKind.DM, chat_id="491700000001")
        (piece,) = adapter.render(Outbound(address=to, text="hi"))
        try:
            for _ in range(PAIR_BURST):
                await adapter.send(to, piece)
            for _ in range(3):
                with pytest.raises(TryLater) as refused:
                    await adapter.send(to, piece)
                assert refused.value.after is not None
                clock.now += round(refused.value.after)
                await adapter.send(to, piece)
        finally:
            await adapter.close()
