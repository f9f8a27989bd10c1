"""What nobody can make the HTTP side hold: packed bodies, connections, values, unfinished uploads."""

import asyncio
import contextlib
import gzip
import json
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp.compression_utils import ZLibDecompressor
from structlog.testing import capture_logs

from adapters.base import WebhookReply
from gateway.api.http.body import ByteBudget
from gateway.api.http.connection import ConnectionLimits, ConnectionShares, IdleTimes
from gateway.api.http.server_state import ApiLimits, Intervals
from gateway.dispatch.fair_queue import FairPlaces
from tests.integration.api.serving import CHATTER, OTHER, OWNER, connected, gateway, raw_answer

CHAT = "/v1/chat/completions"
UNITS = Path(__file__).parents[3] / "systemd"


def request(path: str, key: str = "", body: bytes = b"", length: int | None = None, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([*lines, *more, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [(CHAT, "", 401), (CHAT, OWNER.secret, 415), ("/v1/models", "", 401), ("/webhooks/telegram", "", 404)],
)
async def test_packed_bodies_are_never_unpacked(
    home: Path, path: str, key: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[object] = []
    monkeypatch.setattr(ZLibDecompressor, "decompress_sync", lambda *args, **_: unpacked.append(args) or b"")
    packed = gzip.compress(b" " * 50_000_000)
    async with gateway(home) as gw:
        answer = await raw_answer(gw, request(path, key, packed, None, "Content-Encoding: gzip", "Connection: close"))
        assert int(answer.split()[1]) == status
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"]
        assert gw.model.count == 0
    assert not unpacked


async def test_after_a_refusal_not_much_is_read(home: Path) -> None:
    async with gateway(home) as gw:
        reader, writer = await connected(gw)
        writer.write(request(CHAT, "", b"", 100_000_000))
        assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == b"401"
        async with asyncio.timeout(30):
            assert await _pour(writer) < 30_000_000


async def _pour(writer: asyncio.StreamWriter) -> int:
    """How many bytes went until the other side had enough."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b" " * 65_536)
            await writer.drain()
            sent += 65_536
    return sent


async def get(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str = "") -> bytes:
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{key}\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    return head.split()[1] + await reader.readexactly(int(length.partition(b":")[2]))


async def test_strangers_keep_nobody_out(home: Path) -> None:
    section = {"connections": 16, "connections_per_address": 16}
    with capture_logs() as lines:
        async with gateway(home, sections={"api": section}) as gw:
            held = [await connected(gw) for _ in range(100)]
            assert (await gw.ask("GET", "/v1/models"))[0] == 200
            assert (await gw.ask("GET", "/healthz", key=None))[0] == 200
            closed = [reader for reader, _ in held if reader.at_eof() or reader.exception()]
            assert len(closed) >= 80
            for _, writer in held:
                writer.close()
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["connections.too_many"]


async def test_who_has_no_key_does_not_stay_long(home: Path) -> None:
    intervals = Intervals(idle=IdleTimes(head=30, with_key=30, without_key=0.05), shutdown=0.2)
    async with gateway(home, intervals=intervals) as gw:
        reader, writer = await connected(gw)
        assert (await get(reader, writer)).startswith(b"200")
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        assert (await gw.ask("GET", "/v1/models"))[0] == 200
        writer.close()


@pytest.mark.parametrize("unit", sorted(UNITS.rglob("hermes-gateway.service")), ids=lambda unit: unit.parent.name)
def test_the_units_allow_more_files_than_connections(unit: Path) -> None:
    found = re.search(r"^LimitNOFILE=(\d+)$", unit.read_text(), re.MULTILINE)
    assert found is not None
    assert int(found[1]) > 2 * ConnectionShares().total


class Wire:
    def __init__(self, address: str = "a", busy: bool = False) -> None:
        self.address, self.busy, self.closed = address, busy, False

    def force_close(self) -> None:
        self.closed = True


def test_the_largest_crowd_loses_its_oldest_idle_connection() -> None:
    limits = ConnectionLimits(ConnectionShares(total=8, per_address=8))
    busy, crowd, guest = Wire("a", busy=True), [Wire("a") for _ in range(5)], Wire("b")
    for wire in (guest, busy, *crowd):
        limits.opened(wire)
    newest = [Wire("c"), Wire("c"), Wire("c")]
    for wire in newest:
        limits.opened(wire)
    assert [wire.closed for wire in crowd] == [True, True, False, False, False]
    assert not any(wire.closed for wire in (busy, guest, *newest))
    assert limits.count == 8


def test_one_address_has_its_limit() -> None:
    limits = ConnectionLimits(ConnectionShares(total=100, per_address=3))
    wires = [Wire() for _ in range(5)]
    for wire in wires:
        limits.opened(wire)
    assert [wire.closed for wire in wires] == [True, True, False, False, False]


def test_a_key_leaves_room_for_other_keys_and_all_keys_for_new_callers() -> None:
    limits = ConnectionLimits(ConnectionShares(total=16, per_address=16))

    def come(key: str, *, busy: bool) -> tuple[Wire, bool]:
        wire = Wire(busy=busy)
        limits.opened(wire)
        return wire, limits.identified(wire, key)

    streams = [come("a", busy=True) for _ in range(12)]
    assert [admitted for _, admitted in streams].count(True) == 9
    assert [come("b", busy=True)[1] for _ in range(4)] == [True, True, True, False]
    assert limits.count <= 16
    streams[0][0].busy = False
    assert come("b", busy=True)[1]
    assert streams[0][0].closed


async def test_large_bodies_share_their_bytes_a_second(home: Path) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "x" * 200_000}]}).encode()
    async with gateway(home, limits=ApiLimits(large_per_second=500_000)) as gw:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answers = await asyncio.gather(
            *(raw_answer(gw, request(CHAT, OWNER.secret, body, None, "Connection: close")) for _ in range(3))
        )
        took = loop.time() - began
    assert [answer.split()[1] for answer in answers] == [b"200"] * 3
    assert took > 3 * (200_000 - 65_536 - 65_536) / 500_000  # the first pieces are not counted


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [{}] * 300_000}]},
        {"messages": [{"role": "user", "content": "x"}], "metadata": {"a": [[]] * 300_000}},
        {"messages": [{}] * 90_000},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 3_000}]},
    ],
    ids=["parts", "anywhere", "messages", "good parts"],
)
async def test_too_many_values_are_refused_before_anything_is_made_of_them(home: Path, body: Any) -> None:
    async with gateway(home) as gw:
        headers = {**gw.headers(), "Content-Type": "application/json"}
        async with gw.http.post(gw.url + CHAT, data=json.dumps(body), headers=headers) as answer:
            error = (await answer.json())["error"]
            assert answer.status == 400
            assert len(error["message"]) < 500


async def test_long_texts_full_of_commas_are_no_values(home: Path) -> None:
    text = 'a, "b", [c], {d} ' * 8_000
    async with gateway(home, ["Read."]) as gw:
        assert await gw.chat(text) == "Read."
        assert gw.model.calls[0].messages[-1]["content"].endswith(text)


async def test_unfinished_bodies_lie_in_files_and_hold_up_only_their_own_key(home: Path) -> None:
    async with gateway(home, limits=ApiLimits(large_arriving=4), intervals=Intervals(body=2, shutdown=0.2)) as gw:
        body = json.dumps({"messages": [{"role": "user", "content": "x" * 400_000}]}).encode()
        held = [await connected(gw) for _ in range(6)]
        for _, writer in held:
            writer.write(request(CHAT, CHATTER.secret, body[:-10], len(body)))
        async with asyncio.timeout(30):
            assert (await gw.chat("y" * 400_000))[:5]
        for _, writer in held:
            writer.close()


async def test_two_keys_that_never_finish_leave_a_third_its_place(home: Path) -> None:
    async with gateway(home, intervals=Intervals(body=60, shutdown=0.2)) as gw:
        held = [await connected(gw) for _ in range(16)]
        for number, (_, writer) in enumerate(held):
            secret = (CHATTER, OTHER)[number // 8].secret  # the first has its share before the second comes
            writer.write(request(CHAT, secret, b"x" * 100_000, 200_000))
            await writer.drain()
        async with asyncio.timeout(30):
            assert (await gw.chat("y" * 400_000))[:5]
        for _, writer in held:
            writer.close()


async def signed(headers: Mapping[str, str], body: bytes) -> WebhookReply | None:
    return WebhookReply() if headers.get("X-Secret") == "right" else None


async def test_a_crowd_of_unsigned_bodies_holds_up_no_signed_one(home: Path) -> None:
    limits = ApiLimits(hooks_arriving=4)
    async with gateway(home, limits=limits, webhooks={"slack": signed}, intervals=Intervals(shutdown=0.2)) as gw:
        held = [await connected(gw) for _ in range(40)]
        for _, writer in held:
            writer.write(request("/webhooks/slack", "", b"x" * 400_000, 4_000_000))
        await asyncio.wait([asyncio.ensure_future(reader.read(20)) for reader, _ in held[:-4]], timeout=30)
        headers = {"X-Secret": "right"}
        async with (
            asyncio.timeout(30),
            gw.http.post(f"{gw.url}/webhooks/slack", data=b"y" * 400_000, headers=headers) as answer,
        ):
            assert answer.status == 200
        for _, writer in held:
            writer.close()


async def test_a_body_that_nobody_vouches_for_has_to_come_at_a_least_speed(home: Path) -> None:
    async with gateway(home, webhooks={"slack": signed}, intervals=Intervals(hook_body=0.05)) as gw:
        answer = await raw_answer(gw, request("/webhooks/slack", "", b"x" * 100_000, 4_000_000, "Connection: close"))
        assert answer.split()[1] == b"400"
        assert b"too_slow" in answer


def test_a_budget_keeps_half_of_itself_from_one_name() -> None:
    budget = ByteBudget(100)
    assert budget.take("a", 80)  # a single piece may be as large as it is
    assert not budget.take("a", 1)
    assert not budget.take("b", 30)
    assert budget.take("b", 20)
    budget.give_back("a", 80)
    assert budget.take("a", 30)
    assert budget.used == 50


@pytest.mark.parametrize("seed", range(20))
def test_places_are_shared_fairly(seed: int) -> None:
    dice, places = random.Random(seed), FairPlaces(32)
    held: dict[str, int] = dict.fromkeys("abcd", 0)

    def grant(group: str) -> Any:
        def granted() -> None:
            held[group] += 1

        return granted

    for _ in range(500):
        group = dice.choice("aaaabbcd")
        if held[group] and dice.random() < 0.4:
            held[group] -= 1
            places.leave(group)
        else:
            places.queue(group, grant(group))
        assert sum(held.values()) <= 32
        free = 32 - sum(held.values())
        waiting = [name for name in held if places.waiting(name)]
        assert not any(held[name] < 3 * free for name in waiting if held[name] == min(held[w] for w in waiting))


def test_somebody_new_finds_a_place_beside_a_crowd() -> None:
    places, taken = FairPlaces(32), []
    for _ in range(70):
        places.queue("crowd", lambda: taken.append("crowd"))
    assert len(taken) == 24
    places.queue("guest", lambda: taken.append("guest"))
    assert taken[-1] == "guest"
