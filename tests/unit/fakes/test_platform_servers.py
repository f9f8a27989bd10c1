"""The fakes keep their platforms' contracts: these tests speak plain HTTP and websockets to them."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from adapters.testing.discord import DiscordServer
from adapters.testing.slack import SlackServer
from adapters.testing.whatsapp import WhatsAppServer


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Hook:
    """A bot's webhook, which takes what it is told to."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses = [200]

    async def __call__(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        return web.Response(status=self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0])


@pytest.fixture
async def hook() -> AsyncIterator[tuple[Hook, str]]:
    taken = Hook()
    app = web.Application()
    app.router.add_post("/hook", taken)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield taken, f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    await runner.cleanup()


async def test_a_poisoned_call_takes_effect_and_its_answer_keeps_nothing_but_its_ids(
    http: aiohttp.ClientSession,
) -> None:
    async with DiscordServer() as server:
        server.fail("post", poison=True)
        headers = {"Authorization": f"Bot {server.token}"}
        place = f"{server.api_base}/channels/{server.general().id}/messages"
        said = {"content": "hi", "allowed_mentions": {"parse": []}, "flags": 4}
        async with http.post(place, json=said, headers=headers) as answer:
            body = json.loads(await answer.text())
        assert server.violations == []
        (posted,) = server.general().visible()
        assert (posted.text, body["id"]) == ("hi", posted.id)
        assert not isinstance(body["content"], str)
        assert "not_yet_invented" in body


# --- WhatsApp ---


async def test_meta_signs_its_events_and_repeats_them_until_they_are_taken(hook: tuple[Hook, str]) -> None:
    taken, url = hook
    taken.statuses = [500, 503, 200]
    async with WhatsAppServer(retry=0.01) as server:
        ann = server.person("491", "Ann")
        server.calls_back(url)
        server.says(server.dm(ann), ann, "grüße")
        await server.until(lambda: not server.pending)
        assert len(taken.got) == 3
        headers, body = taken.got[0]
        right = hmac.new(server.app_secret.encode(), body, hashlib.sha256).hexdigest()
        assert headers["X-Hub-Signature-256"] == f"sha256={right}"
        assert b"\\u00fc" in body


async def test_meta_refuses_what_breaks_its_rules(http: aiohttp.ClientSession) -> None:
    async with WhatsAppServer() as server:
        server.dm(server.person("491", "Ann"))
        url = f"{server.api_base}/{server.phone_number_id}/messages"
        head = {"messaging_product": "whatsapp", "recipient_type": "individual", "to": "491"}
        for wrong in (
            {**head, "type": "text", "text": {"body": "x" * 4097}},
            {**head, "type": "text", "text": {"body": " "}},
            {**head, "recipient": "DE.1", "type": "text", "text": {"body": "x"}},
            {**head, "type": "text", "text": {"body": "x"}, "invented": 1},
            {**head, "type": "carrier_pigeon"},
            {"messaging_product": "whatsapp", "to": "491", "type": "text", "text": {"body": "x"}},
        ):
            async with http.post(url, json=wrong, headers={"Authorization": f"Bearer {server.token}"}) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (400, 100)
        assert len(server.violations) >= 6
        async with http.post(url, json=head) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (401, 190)


async def test_meta_holds_back_after_a_day_and_limits_a_pair(http: aiohttp.ClientSession) -> None:
    now = [1000.0]
    async with WhatsAppServer(clock=lambda: now[0]) as server:
        ann = server.person("491", "Ann")
        server.says(server.dm(ann), ann, "hello")
        url = f"{server.api_base}/{server.phone_number_id}/messages"
        text = {"type": "text", "text": {"body": "x"}}
        body = {"messaging_product": "whatsapp", "recipient_type": "individual", "to": "491", **text}
        headers = {"Authorization": f"Bearer {server.token}"}
        codes = []
        for _ in range(46):
            async with http.post(url, json=body, headers=headers) as answer:
                codes.append((await answer.json()).get("error", {}).get("code"))
        assert codes == [None] * 45 + [131056]
        now[0] += 90_000
        server.pending.clear()
        async with http.post(url, json=body, headers=headers) as answer:
            assert answer.status == 200
        assert b"131047" in server.pending[-1]


# --- Slack ---


async def test_slack_knows_its_tokens_scopes_and_methods(http: aiohttp.ClientSession) -> None:
    async with SlackServer(scopes="im:history") as server:

        async def call(method: str, token: str = server.bot_token, **body: object) -> str:
            headers = {"Authorization": f"Bearer {token}"}
            async with http.post(f"{server.api_base}{method}", json=body, headers=headers) as answer:
                return (await answer.json()).get("error", "ok")

        assert await call("auth.test") == "ok"
        assert await call("auth.test", "xoxb-wrong") == "invalid_auth"
        assert await call("chat.postMessage", channel="C1", text="x") == "missing_scope"
        assert await call("chat.sing") == "unknown_method"
        server.scopes = "chat:write"
        assert await call("chat.postMessage", channel="C9", text="x") == "channel_not_found"
        assert await call("chat.postMessage", channel="C9", text="x", invented=1) == "invalid_arguments"
        blocks = [{"type": "markdown", "text": "x" * 12_001}]
        assert await call("chat.postMessage", channel="C9", text="x", blocks=blocks) == "invalid_arguments"
        assert len(server.violations) == 2


async def test_slack_sends_an_event_again_that_nobody_acknowledged(http: aiohttp.ClientSession) -> None:
    async with SlackServer(retry=0.01) as server:
        ann = server.person("U7", "Ann")
        headers = {"Authorization": f"Bearer {server.app_token}"}
        async with http.post(f"{server.api_base}apps.connections.open", headers=headers) as answer:
            url = (await answer.json())["url"]
        async with http.ws_connect(url) as socket:
            assert (await socket.receive_json())["type"] == "hello"
            server.says(server.dm(ann), ann, "hello")
            first = await socket.receive_json()
            assert first["payload"]["event"]["text"] == "hello"
        async with http.ws_connect(url) as socket:
            await socket.receive_json()
            again = await socket.receive_json(timeout=10)
            assert again["payload"]["event_id"] == first["payload"]["event_id"]
            assert again["retry_attempt"] == 1
            await socket.send_json({"envelope_id": again["envelope_id"]})
            await server.until(lambda: server.handed_over)


async def test_a_stream_of_slack_is_no_message_before_it_is_stopped(http: aiohttp.ClientSession) -> None:
    async with SlackServer() as server:
        root = server.says(server.channel(), server.person("U7", "Ann"), "hi")

        async def call(method: str, **body: object) -> dict[str, object]:
            headers = {"Authorization": f"Bearer {server.bot_token}"}
            async with http.post(f"{server.api_base}{method}", json=body, headers=headers) as answer:
                return await answer.json()

        begin = {"channel": "C1", "thread_ts": root.id, "markdown_text": "One"}
        assert (await call("chat.startStream", **begin))["error"] == "missing_recipient_user_id"
        began = await call("chat.startStream", **begin, recipient_user_id="U7", recipient_team_id="T1")
        where = {"channel": "C1", "ts": began["ts"]}
        await call("chat.appendStream", **where, markdown_text=" two")
        assert (await call("chat.update", **where, text="x"))["error"] == "streaming_state_conflict"
        assert (await call("chat.stopStream", **where))["ok"]
        assert (await call("chat.stopStream", **where))["error"] == "message_not_in_streaming_state"
        assert server.answers(server.channel()) == ["One two"]


# --- Discord ---


async def identified(server: DiscordServer, socket: aiohttp.ClientWebSocketResponse) -> list[dict]:
    assert (await socket.receive_json())["op"] == 10
    await socket.send_json({"op": 2, "d": {"token": server.token, "intents": 1 << 15}})
    return [await socket.receive_json() for _ in range(2)]


async def test_discord_resumes_a_session_and_invalidates_another(http: aiohttp.ClientSession) -> None:
    async with DiscordServer() as server:
        ann = server.person("7", "Ann")
        async with http.ws_connect(server.gateway_url) as socket:
            ready, guild = await identified(server, socket)
            assert (ready["t"], guild["t"]) == ("READY", "GUILD_CREATE")
        server.says(server.dm(ann), ann, "meanwhile")
        resume = {"op": 6, "d": {"token": server.token, "session_id": ready["d"]["session_id"], "seq": guild["s"]}}
        async with http.ws_connect(server.gateway_url) as socket:
            await socket.receive_json()
            await socket.send_json(resume)
            assert [(await socket.receive_json())["t"] for _ in range(2)] == ["MESSAGE_CREATE", "RESUMED"]
        await server.invalidate()
        async with http.ws_connect(server.gateway_url) as socket:
            await socket.receive_json()
            await socket.send_json(resume)
            assert await socket.receive_json() == {"op": 9, "d": False}


async def test_discord_closes_on_wrong_tokens_and_intents(http: aiohttp.ClientSession) -> None:
    async with DiscordServer(intents=False) as server:
        for token, code in (("wrong", 4004), (server.token, 4014)):
            async with http.ws_connect(server.gateway_url) as socket:
                await socket.receive_json()
                await socket.send_json({"op": 2, "d": {"token": token, "intents": 1 << 15}})
                assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
                assert socket.close_code == code


async def test_discord_remembers_a_nonce_for_some_minutes(http: aiohttp.ClientSession) -> None:
    now = [1_800_000_000.0]
    async with DiscordServer(clock=lambda: now[0]) as server:
        room = server.dm(server.person("7", "Ann"))

        async def post(**body: object) -> tuple[int, str]:
            url, headers = f"{server.api_base}/channels/{room.id}/messages", {"Authorization": f"Bot {server.token}"}
            async with http.post(url, json={"allowed_mentions": {"parse": []}, **body}, headers=headers) as answer:
                assert answer.headers["Content-Type"] == "application/json"
                return answer.status, (await answer.json()).get("id", "")

        one = await post(content="hi", nonce="a", enforce_nonce=True)
        assert await post(content="hi", nonce="a", enforce_nonce=True) == one
        now[0] += 301
        assert await post(content="hi", nonce="a", enforce_nonce=True) != one
        assert len(server.answers(room)) == 2
        assert (await post(content="x" * 2001))[0] == 400
        assert (await post(content="hi", allowed_mentions={"parse": ["everyone"]}))[0] == 400
        assert (await post(content="```\nopen"))[0] == 400
        assert (await post(content="hi", attachments=[{"id": 0, "filename": "a.md"}]))[0] == 400
        assert len(server.violations) == 4
        assert "$.attachments[0].id: 0 is not of type 'string'" in server.violations[-1]


async def test_discord_tells_what_was_said_after_a_message(http: aiohttp.ClientSession) -> None:
    async with DiscordServer() as server:
        ann = server.person("7", "Ann")
        room = server.dm(ann)
        said = [server.says(room, ann, text) for text in "abc"]
        url = f"{server.api_base}/channels/{room.id}/messages?after={said[0].id}"
        async with http.get(url, headers={"Authorization": f"Bot {server.token}"}) as answer:
            assert [one["content"] for one in await answer.json()] == ["c", "b"]


async def test_things_go_wrong_as_they_are_told_to(http: aiohttp.ClientSession) -> None:
    async with WhatsAppServer() as server:
        url = f"{server.api_base}/{server.phone_number_id}"
        headers = {"Authorization": f"Bearer {server.token}"}
        server.fail("about", status=503, body={"a": 1}, headers={"Retry-After": "2"})
        async with http.get(url, headers=headers) as answer:
            assert (answer.status, await answer.json(), answer.headers["Retry-After"]) == (503, {"a": 1}, "2")
        server.fail("about", drop="before", times=2)  # the client itself tries a GET twice
        with pytest.raises(aiohttp.ClientError):
            await http.get(url, headers=headers)
        gate = asyncio.Event()
        server.fail("about", wait=gate)
        waiting = asyncio.ensure_future(http.get(url, headers=headers))
        await server.until(lambda: server.faults[-1].times == 0)
        assert not waiting.done()
        gate.set()
        assert json.loads(await (await waiting).text())["id"] == server.phone_number_id
