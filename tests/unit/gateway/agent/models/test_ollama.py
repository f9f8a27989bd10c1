"""What counts as an Ollama on this machine."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from gateway.agent.models.endpoint import ask_ollama


@contextmanager
def answering(status: int, body: bytes) -> Iterator[int]:
    class OllamaAnswer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/api/tags" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), OllamaAnswer)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "name"),
    [
        (200, json.dumps({"models": [{"name": "nomic-embed-text"}, {"name": "qwen3:8b"}]}).encode(), "qwen3:8b"),
        (200, b'{"models": []}', None),
        (200, b'{"object": "list", "data": []}', None),
        (200, b'{"models": ["x", 3]}', None),
        (200, b"[]", None),
        (200, b"<html>", None),
        (200, b"\xff\xfe", None),
        (404, b'{"models": [{"name": "x"}]}', None),
    ],
)
def test_only_an_ollama_that_lists_models_is_one(status, body, name):
    with answering(status, body) as port:
        assert ask_ollama(port=port) == name


def test_nobody_there():
    with answering(200, b"") as port:
        pass
    assert ask_ollama(port=port) is None
