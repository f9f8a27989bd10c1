"""Validates data as pydantic does, but reads texts as their keys want them, and goes on without what is wrong."""

from collections.abc import Iterator
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.config.model import Config
from gateway.config.overlay import BadReference, UntypedText
from gateway.config.problems import BadConfig, Path
from gateway.config.schema_info import KeySchema
from gateway.config.yaml_nodes import read_yaml

_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_JSON_TYPES = {
    "bool_type": "boolean",
    "int_type": "integer",
    "float_type": "number",
    "list_type": "array",
    "dict_type": "object",
    "model_type": "object",
}


def validated(root: type[Config], data: Any) -> tuple[Config, list[tuple[Path, ErrorDetails]]]:
    """The configuration, and what is wrong by its path. That is taken out of the data, so that the rules can look at the rest."""
    wrong: list[tuple[Path, ErrorDetails]] = []
    # It ends: each round turns texts into what they mean, which is no such text any more, or takes something out.
    while True:
        try:
            config = root.model_validate(data)
            found = [(_steps(data, path), _not_resolved(path, one)) for path, one in _bad_references(data)]
            if not found:
                return config, wrong
        except ValidationError as error:
            found = [(_steps(data, one["loc"]), one) for one in error.errors(include_url=False)]
        for steps, one in found:
            holder, part = steps[-1]
            value = _meant(one)
            if value is one["input"]:
                wrong.append((tuple(part for _, part in steps), one))
                value = {}
                if one["type"] != "model_type":
                    # The named key goes as a whole, so that the indices of lists stay what they are.
                    holder, part = next(step for step in reversed(steps) if isinstance(step[1], str))
                    holder.pop(part, None)
                    continue
            holder[part] = value


def _bad_references(data: Any, path: Path = ()) -> Iterator[tuple[Path, BadReference]]:
    """Those under keys of other packages that take anything."""
    match data:
        case BadReference():
            yield path, data
        case dict():
            for name, one in cast(dict[str, Any], data).items():
                yield from _bad_references(one, (*path, name))
        case list():
            for at, one in enumerate(cast(list[Any], data)):
                yield from _bad_references(one, (*path, at))
        case _:
            pass


def _not_resolved(path: Path, reference: BadReference) -> ErrorDetails:
    return {"type": "bad_reference", "loc": path, "msg": reference.said, "input": reference}


def _meant(error: ErrorDetails) -> Any:
    """What was written, as the type that pydantic missed; as it is, where it means nothing of that type."""
    kind = _JSON_TYPES.get(error["type"], "")
    match error["input"]:
        case None if kind in {"array", "object"}:  # a section whose keys are all commented out
            return [] if kind == "array" else {}
        case str() as text if isinstance(text, UntypedText) or kind == "boolean":
            return from_text(text, {"type": kind})
        case written:
            return written


def from_text(text: str, wanted: KeySchema) -> Any:
    """What a text means for a key; the text itself, where it means nothing of its type."""
    match wanted.get("type"):
        case "boolean":
            return _SWITCHES.get(text.strip().lower(), text)
        case "array" if not text.lstrip().startswith("["):
            parts = [UntypedText(part.strip()) for part in text.split(",") if part.strip()]
            return [from_text(part, wanted.get("items", {})) for part in parts]
        case "integer" | "number" | "array" | "object" if text.strip():
            try:
                value = read_yaml(text).data
            except BadConfig:
                return text
            # 1e3 is a whole number, too.
            is_whole = wanted["type"] == "integer" and isinstance(value, float) and value.is_integer()
            return int(value) if is_whole else value
        case _:
            return text


def _steps(data: Any, location: Path) -> list[tuple[Any, str | int]]:
    """The way to a place in the data. Left out is what pydantic adds to say that it looked at a key, or at one type of several."""
    steps: list[tuple[Any, str | int]] = []
    for part in location:
        if isinstance(data, list) or (isinstance(data, dict) and part in cast(dict[str, Any], data)):
            steps.append((cast(Any, data), part))
            data = cast(Any, data)[part]
    return steps
