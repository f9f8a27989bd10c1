"""How large the window of a model is, as its endpoint says. Pure: answers in, tokens out."""

import re
from collections.abc import Mapping
from typing import Any, cast

_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)", re.MULTILINE)
_NAMES = (
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
)  # vLLM, OpenRouter, Groq, LM Studio


def from_models(answer: object, model: str) -> int | None:
    """Reads the window from `GET /v1/models`: of this model, or of the only one that there is."""
    rows = _list(_dict(answer).get("data"))
    named = [row for row in rows if row.get("id") == model]
    row = (named or (rows if len(rows) == 1 else [{}]))[0]
    served = _number(_dict(row.get("meta")).get("n_ctx"))  # llama.cpp; n_ctx_train there is what could be served
    found = [served, *(_number(row.get(name)) for name in _NAMES)]
    return next((size for size in found if size), None)


def from_ollama(answer: object) -> int | None:
    """Reads the window from Ollama's `POST /api/show`: `num_ctx` where the model sets it, else what the model was made for."""
    shown = _dict(answer)
    if found := _NUM_CTX.search(str(shown.get("parameters") or "")):
        return int(found.group(1)) or None
    sizes = [_number(size) for name, size in _dict(shown.get("model_info")).items() if name.endswith(".context_length")]
    return next((size for size in sizes if size), None)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _dict(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [_dict(row) for row in cast(list[object], value)] if isinstance(value, list) else []
