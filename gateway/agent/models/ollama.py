"""Looks for an Ollama on this machine, and for a model of it that answers."""

import http.client
import json
from typing import Any, cast

OLLAMA_HOST, OLLAMA_PORT = "127.0.0.1", 11434
OLLAMA = f"http://{OLLAMA_HOST}:{OLLAMA_PORT}/v1"


def ask_ollama(host: str = OLLAMA_HOST, port: int = OLLAMA_PORT, *, timeout: float = 0.5) -> str | None:
    """The model that a local Ollama would answer with; None if there is none. Blocks for `timeout` at most twice."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", "/api/tags")
        response = connection.getresponse()
        answer: Any = json.loads(response.read(1_000_000)) if response.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None  # nothing listens there, or something else does
    finally:
        connection.close()
    return _first_that_talks(answer)


def _first_that_talks(answer: Any) -> str | None:
    models: Any = cast(dict[str, Any], answer).get("models") if isinstance(answer, dict) else None
    entries = cast(list[Any], models) if isinstance(models, list) else []
    names = [str(cast(dict[str, Any], entry).get("name", "")) for entry in entries if isinstance(entry, dict)]
    return next((name for name in names if name and "embed" not in name), None)
