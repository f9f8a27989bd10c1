"""Who is let in, from where, and with what."""

import json
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.base import WebhookReply
from gateway.api.http.callers import CallerKey, Scope, Throttle, find_key, local_key
from gateway.api.http.endpoint import EndpointAccess
from gateway.api.http.server import ENDPOINTS, refuse_unsafe, serving
from gateway.api.http.server_state import ApiLimits, ServerState
from gateway.chats.runner import PlatformHealth, PlatformState
from sessions import store
from sessions.errors import Invalid
from tests.app import enable
from tests.integration.api.serving import CHAT, CHATTER, OWNER, READER, gateway, is_error_body, raw_answer

CLOSED = [e for e in ENDPOINTS if e.access is EndpointAccess.KEY]


def address(path: str) -> str:
    ids = {name: f"{name.removesuffix('_id')[:4]}_" + "0" * 24 for name in ("response_id", "conversation_id")}
    ids |= {"thread_id": "thread_" + "0" * 24, "run_id": "run_" + "0" * 24, "model": "big", "job_id": "0" * 12}
    return path.format(deployment_id="dep_main", **ids)


async def test_nothing_answers_without_a_key(home: Path) -> None:
    async with gateway(home) as gw:
        for endpoint in CLOSED:
            status, answer, headers = await gw.ask(endpoint.method, address(endpoint.path), {}, key=None)
            assert (status, is_error_body(answer)) == (401, True), endpoint.path
            assert headers["WWW-Authenticate"] == "Bearer"


async def test_a_key_in_the_address_counts_for_nothing(home: Path) -> None:
    async with gateway(home) as gw:
        for query in ("api_key", "key", "token", "access_token"):
            status, _, _ = await gw.ask("GET", f"/v1/models?{query}={OWNER.secret}", key=None)
            assert status == 401


async def test_wrong_keys_are_slowed_down_and_right_ones_never(home: Path) -> None:
    wrong = CallerKey(name="wrong", secret="w" * 40)
    async with gateway(home, limits=ApiLimits(wrong_keys_at_once=3)) as gw:
        statuses = [(await gw.ask("GET", "/v1/models", key=wrong))[0] for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert int((await gw.ask("GET", "/v1/models", key=wrong))[2]["Retry-After"]) >= 1
        assert (await gw.ask("GET", "/v1/models"))[0] == 200


async def test_whoever_tries_keys_for_ever_does_not_fill_the_log(home: Path) -> None:
    wrong, now = CallerKey(name="wrong", secret="w" * 40), 0.0
    limits = ApiLimits(wrong_keys_at_once=2, wrong_keys_per_second=1)
    async with gateway(home, limits=limits, clock=lambda: now) as gw:
        with capture_logs() as lines:
            for passed in (0, 0, 0, 0, 1, 0, 0.5, 2.5):  # after the last pause it counts anew
                now += passed
                await gw.ask("GET", "/v1/models", key=wrong)
        told = [line["event"] for line in lines if line["log_level"] == "warning"]
        assert told == ["auth.denied", "auth.denied", "auth.throttled", "auth.denied"]


async def test_a_key_that_calls_too_often_is_asked_to_wait(home: Path) -> None:
    async with gateway(home, limits=ApiLimits(calls_at_once=2, calls_per_second=0.01)) as gw:
        statuses = [(await gw.ask("GET", "/v1/models"))[0] for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert (await gw.ask("GET", "/v1/models", key=CHATTER))[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8642"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:8642"}, 200),
        ({"Host": "hermes.example"}, 200),
        ({"Host": "proxy.lan"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1.evil.example"}, 403),
        ({"Origin": "https://hermes.example"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
    ],
)
async def test_host_and_origin_are_ours(home: Path, headers: dict[str, str], status: int) -> None:
    section = {"public_url": "https://hermes.example/x", "allowed_hosts": ["proxy.lan"]}
    async with gateway(home, sections={"api": section}) as gw:
        found, answer, sent = await gw.ask("GET", "/v1/models", **headers)
        assert found == status
        assert status == 200 or is_error_body(answer)
        assert not [name for name in sent if name.lower().startswith("access-control")]


async def test_scopes_are_kept(home: Path) -> None:
    async with gateway(home) as gw:
        assert (await gw.ask("POST", "/v1/chat/completions", CHAT, key=READER))[0] == 403
        assert (await gw.ask("GET", "/metrics", key=CHATTER))[0] == 403
        status, text, headers = await gw.ask("GET", "/metrics", key=READER)
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        for name in (
            b"hermes_runs",
            b"hermes_inbox_oldest_seconds",
            b"hermes_build_info",
            b"process_resident_memory_bytes",
        ):
            assert name in text


async def test_an_administrator_sees_deployments_without_further_scopes(home: Path) -> None:
    admin = CallerKey(name="admin", secret="a" * 40, scopes=frozenset({Scope.ADMIN}))
    async with gateway(home, keys=(admin,)) as gw:
        _, made, _ = await gw.ask("POST", "/v1/deployments", {"name": "x"}, key=admin)
        for path in ("/v1/deployments", f"/v1/deployments/{made['deployment_id']}"):
            assert (await gw.ask("GET", path, key=admin))[0] == 200
        assert (await gw.ask("GET", f"/v1/deployments/{made['deployment_id']}/threads", key=admin))[0] == 403


async def test_answers_do_not_say_what_serves_them(home: Path) -> None:
    async with gateway(home) as gw:
        for path in ("/healthz", "/v1/models", "/nowhere"):
            assert (await gw.ask("GET", path))[2]["Server"] == "hermes-gateway"


async def test_unknown_addresses_and_methods_have_the_shape_of_errors(home: Path) -> None:
    async with gateway(home) as gw:
        status, answer, _ = await gw.ask("GET", "/v1/nothing")
        assert (status, is_error_body(answer)) == (404, True)
        status, answer, headers = await gw.ask("DELETE", "/v1/models")
        assert (status, is_error_body(answer), headers["Allow"]) == (405, True, "GET,HEAD")
        for path in ("/v1/deployments/dep_main%00", "/v1/deployments/..%2f..", "/v1/deployments/dep_main/runs/x'--"):
            assert (await gw.ask("GET", path))[0] == 404


async def test_the_description_is_open_here_and_nowhere_else(home: Path) -> None:
    async with gateway(home, sections={"api": {"public_url": "https://hermes.example"}}) as gw:
        status, described, _ = await gw.ask("GET", "/openapi.json", key=None)
        assert (status, described["openapi"]) == (200, "3.1.0")
        status, page, headers = await gw.ask("GET", "/docs", key=None)
        assert status == 200
        assert b"https://" not in page
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        for path in ("/openapi.json", "/docs"):
            assert (await gw.ask("GET", path, key=None, Host="hermes.example"))[0] == 401


async def test_readiness_waits_for_every_part(home: Path) -> None:
    async with gateway(home) as gw:
        enable(gw.app, "telegram")
        assert (await gw.ask("GET", "/healthz", key=None))[0] == 200
        status, body, _ = await gw.ask("GET", "/readyz", key=None)
        assert (status, body["waiting"]) == (503, ["telegram"])
        health = PlatformHealth(state=PlatformState.LOST, message="gone", was_up=True)
        platform: Any = SimpleNamespace(health=health, current_health=lambda: health)
        assert gw.app.chats is not None
        gw.app.chats.running["telegram"] = platform
        status, body, _ = await gw.ask("GET", "/readyz", key=None)
        assert (status, body["status"], body["parts"]["telegram"]["state"]) == (200, "degraded", "lost")


async def test_webhooks_take_any_host_and_origin_but_not_any_signature(home: Path) -> None:
    seen: list[bytes] = []

    async def receive(headers: Any, body: bytes) -> WebhookReply | None:
        if headers.get("X-Secret") != "right":
            return None
        seen.append(body)
        return WebhookReply(text="thanks")

    async with gateway(home, webhooks={"telegram": receive, "matrix": receive}) as gw:
        async with gw.http.post(
            f"{gw.url}/webhooks/telegram",
            data=b"raw \x00",
            headers={"X-Secret": "right", "Host": "any", "Origin": "https://any"},
        ) as answer:
            assert (answer.status, await answer.text()) == (200, "thanks")
        assert seen == [b"raw \x00"]
        of_another_package = f"{gw.url}/webhooks/matrix"
        async with gw.http.post(of_another_package, data=b"", headers={"X-Secret": "right"}) as answer:
            assert answer.status == 200
        assert (await gw.ask("POST", "/webhooks/telegram", {}, key=None))[0] == 401
        assert (await gw.ask("POST", "/webhooks/slack", {}, key=None))[0] == 404
        async with gw.http.post(
            f"{gw.url}/webhooks/telegram", data=b"x" * 4_300_000, headers={"X-Secret": "right"}
        ) as answer:
            assert answer.status == 413


def test_the_generated_key_is_the_owners_only(home: Path) -> None:
    key = local_key(home)
    assert local_key(home) == key
    assert len(key.secret) >= 32
    assert stat.S_IMODE((home / "api_key").stat().st_mode) == 0o600
    assert key.secret not in repr(key)


def test_keys_are_found_by_all_of_their_characters() -> None:
    assert find_key([OWNER, READER], READER.secret) is READER
    for wrong in ("", READER.secret[:-1], READER.secret + "x", "é\udcff"):
        assert find_key([OWNER, READER], wrong) is None


def test_other_machines_need_long_configured_keys(home: Path) -> None:
    refuse_unsafe([CallerKey(name="short", secret="s")], "127.0.0.1")
    refuse_unsafe([OWNER], "0.0.0.0")
    for keys in ((), (CallerKey(name="short", secret="s" * 31),), (local_key(home),)):
        with pytest.raises(Invalid, match="32 characters"):
            refuse_unsafe(keys, "0.0.0.0")


async def test_a_taken_port_names_who_holds_it(home: Path) -> None:
    async with gateway(home) as gw:
        port = int(gw.url.rpartition(":")[2])
        with pytest.raises(Invalid, match=rf"Port {port} is taken by .*\(process \d+\)"):
            async with serving(ServerState(gw.app), "127.0.0.1", port):
                pass


def test_a_throttle_refills_and_forgets_the_oldest() -> None:
    now = 0.0
    throttle = Throttle(burst=2, per_second=0.5, clock=lambda: now, most=2)
    assert [throttle.take("a"), throttle.take("a"), throttle.take("a")] == [0, 0, 2]
    now = 2.0
    assert throttle.take("a") == 0
    assert throttle.take("b") == throttle.take("c") == throttle.take("a") == 0


@pytest.mark.parametrize("session", [{}, {"X_Hermes_Session_Id": "s"}])
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/x.png", "http://169.254.169.254/latest", "http://[::1]/x", "http://2130706433/"]
)
async def test_pictures_at_private_addresses_are_refused(home: Path, url: str, session: dict[str, str]) -> None:
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    async with gateway(home) as gw:
        body = {"messages": [{"role": "user", "content": parts}]}
        status, answer, _ = await gw.ask("POST", "/v1/chat/completions", body, **session)
        assert (status, answer["error"]["code"]) == (400, "bad_url")
        assert gw.model.count == 0


async def test_head_is_answered_as_get_without_a_body(home: Path) -> None:
    async with gateway(home) as gw:
        for path in ("/healthz", "/readyz", "/v1/models", "/metrics"):
            async with gw.http.head(gw.url + path, headers=gw.headers()) as answer:
                assert (answer.status, await answer.read()) == (200, b"")


async def test_a_session_id_in_latin_1_is_one(home: Path) -> None:
    body = json.dumps(CHAT).encode()
    async with gateway(home) as gw:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OWNER.secret}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\nX-Hermes-Session-Id: caf\xe9\r\n\r\n"
        assert b" 200 " in (await raw_answer(gw, head.encode("latin-1") + body)).split(b"\r\n")[0]
        found = await gw.database.read(store.recent)
        assert [session.session_key for session in found] == ["agent:main:api:owner:caf\xe9"]
