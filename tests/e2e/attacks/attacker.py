"""What an attacker does, in a process of his own: plain sockets, as many and as fast as they go."""

import contextlib
import gzip
import json
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor

CHAT = "/v1/chat/completions"


def head(path: str, length: int, key: str = "", *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {length}"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([*lines, *more, "Connection: close", "", ""]).encode()


def send(port: int, data: bytes, seconds: float = 60) -> bytes:
    """What is answered until the other side closes, or has been silent for so long."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as wire:
        answer = b""
        with contextlib.suppress(OSError):
            wire.sendall(data)
        with contextlib.suppress(OSError):
            while piece := wire.recv(65_536):
                answer += piece
        return answer


def _all_at_once(port: int, data: bytes, times: int) -> list[bytes]:
    with ThreadPoolExecutor(times) as threads:
        return list(threads.map(lambda _: send(port, data), range(times)))


def packed_bodies(port: int, key: str) -> list[int]:
    """The statuses of the answers to 12 bodies of 1 MB that hold 1 GB each."""
    packed = gzip.compress(b" " * 2**30, compresslevel=9)
    answers = _all_at_once(port, head(CHAT, len(packed), key, "Content-Encoding: gzip") + packed, 12)
    return [int(answer.split()[1]) for answer in answers if answer]


def crowd(port: int, connections: int) -> None:
    """Half of them have made a request, half say nothing."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    opened = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(connections)]
    for wire in opened[: connections // 2]:
        with contextlib.suppress(OSError):
            wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(3)
    for wire in opened:
        wire.close()


def contents(port: int, key: str, content: str) -> list[int]:
    """20 messages with this content, five at a time."""
    body = f'{{"messages": [{{"role": "user", "content": {content}}}]}}'.encode()
    answers = [answer for _ in range(4) for answer in _all_at_once(port, head(CHAT, len(body), key) + body, 5)]
    return [int(answer.split()[1]) for answer in answers if answer]


def unfinished(port: int, key: str) -> None:
    """Two rounds of 30 bodies of 20 MB that end ten bytes short."""
    whole = json.dumps({"messages": [{"role": "user", "content": "x" * 20_000_000}]}).encode()
    for _ in range(2):
        opened = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(30)]
        with ThreadPoolExecutor(30) as threads:
            for wire in opened:
                threads.submit(wire.sendall, head(CHAT, len(whole), key) + whole[:-10])
        time.sleep(2)
        for wire in opened:
            wire.close()


def pictures(port: int, key: str) -> list[int]:
    """20 pictures of 18 MB, all at once, on one session."""
    picture = "data:image/png;base64," + "iVBORw0KGgo" + "A" * (24_000_000 - 11)
    part = {"type": "image_url", "image_url": {"url": picture}}
    body = json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()
    answers = _all_at_once(port, head(CHAT, len(body), key, "X-Hermes-Session-Id: pictures") + body, 20)
    return [int(answer.split()[1]) for answer in answers if answer]


def slow_calls(port: int, key: str) -> list[int]:
    """70 calls at once that the model takes seconds for."""
    body = json.dumps({"messages": [{"role": "user", "content": "slow"}]}).encode()
    answers = _all_at_once(port, head(CHAT, len(body), key) + body, 70)
    return [int(answer.split()[1]) for answer in answers if answer]
