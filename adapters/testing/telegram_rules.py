# pyright: basic
"""What Telegram accepts: its published request schema, its rules about text, and its flood limits."""

import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

API = json.loads(Path(__file__).with_name("telegram_api.json").read_text(encoding="utf-8"))
TEXT_UNITS = 4096
CAPTION_UNITS = 1024
ENTITIES = 100
CALLBACK_BYTES = 64
REACTIONS = "👍👎❤🔥🥰👏😁🤔🤯😱🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾😡"

Json = dict[str, Any]


def decode(method: str, raw: Mapping[str, Any]) -> tuple[Json, list[str]]:
    """Parameters as they come over the wire (text, mostly) in their own types, and what is wrong with them."""
    fields = API["methods"].get(method)
    if fields is None:
        return dict(raw), [f"{method}: no such method"]
    params: Json = {}
    problems: list[str] = []
    for name, value in raw.items():
        types = fields.get(name, {}).get("types")
        if types is None:
            problems.append(f"{method}: no parameter {name}")
            continue
        params[name] = _from_wire(value, types)
        problems += [f"{method}: {problem}" for problem in _mistakes(name, params[name], types)]
    missing = [name for name, spec in fields.items() if spec.get("required") and name not in raw]
    return params, problems + [f"{method}: {name} is missing" for name in missing]


def _from_wire(value: Any, types: Sequence[str]) -> Any:
    if not isinstance(value, str) or types == ["String"]:
        return value
    if "String" in types and not value.lstrip("-").isdigit():
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _mistakes(where: str, value: Any, types: Sequence[str]) -> list[str]:
    """Empty when the value fits one of the types; otherwise what is wrong with the last one tried."""
    found: list[str] = []
    for kind in types:
        found = _mistakes_of(where, value, kind)
        if not found:
            return []
    return found


def _mistakes_of(where: str, value: Any, kind: str) -> list[str]:
    if kind.startswith("Array of "):
        if not isinstance(value, list):
            return [f"{where} is not a list"]
        return [problem for n, item in enumerate(value) for problem in _mistakes(f"{where}[{n}]", item, [kind[9:]])]
    simple = {
        "Integer": int,
        "String": str,
        "Boolean": bool,
        "True": bool,
        "Float": (int, float),
        "InputFile": (bytes, str),
    }
    if kind in simple:
        wrong = not isinstance(value, simple[kind]) or (kind == "Integer" and isinstance(value, bool))
        return [f"{where} is no {kind}: {value!r}"] if wrong else []
    spec = API["types"][kind]
    if "subtypes" in spec:
        return _mistakes(where, value, spec["subtypes"])
    if not isinstance(value, dict):
        return [f"{where} is no {kind}: {value!r}"]
    return _object_mistakes(where, value, spec["fields"])


def _object_mistakes(where: str, value: Json, fields: Json) -> list[str]:
    found = [f"{where}.{name} does not exist" for name in value if name not in fields]
    found += [
        f"{where}.{name} is missing" for name, spec in fields.items() if spec.get("required") and name not in value
    ]
    for name, item in value.items():
        if name in fields:
            found += _mistakes(f"{where}.{name}", item, fields[name]["types"])
    return found


def utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def text_problems(text: str, entities: Sequence[Json], limit: int) -> list[str]:
    units = utf16(text)
    length = len(units) // 2
    found = [f"text of {length} units is over {limit}"] if length > limit else []
    if len(entities) > ENTITIES:
        found.append(f"{len(entities)} entities are over {ENTITIES}")
    for entity in entities:
        start, end = entity["offset"], entity["offset"] + entity["length"]
        if not 0 <= start < end <= length:
            found.append(f"entity {entity} is outside the text of {length} units")
        elif _tears_a_pair(units, start) or _tears_a_pair(units, end):
            found.append(f"entity {entity} tears a surrogate pair")
        if entity["type"] == "text_link" and not entity.get("url", "").startswith(
            ("http://", "https://", "tg://", "mailto:")
        ):
            found.append(f"entity {entity} has no usable url")
    return found + [problem for pair in combinations(entities, 2) for problem in _overlap(*pair)]


def _tears_a_pair(units: bytes, at: int) -> bool:
    return 2 * at < len(units) and 0xDC00 <= int.from_bytes(units[2 * at : 2 * at + 2], "little") <= 0xDFFF


def _overlap(one: Json, two: Json) -> list[str]:
    first, second = sorted((one, two), key=lambda entity: (entity["offset"], -entity["length"]))
    end = first["offset"] + first["length"]
    if second["offset"] >= end:
        return []
    kinds = {first["type"], second["type"]}
    if second["offset"] + second["length"] > end:
        return [f"entities {first} and {second} cross"]
    if kinds & {"code", "pre"} and "blockquote" not in kinds:
        return [f"entities {first} and {second}: nothing goes with code"]
    return [f"entities {first} and {second} are nested"] if len(kinds) == 1 else []


def keyboard_problems(markup: Json | None) -> list[str]:
    buttons = [button for row in (markup or {}).get("inline_keyboard", []) for button in row]
    return [
        f"callback_data of {b['text']!r} is not 1-64 bytes"
        for b in buttons
        if not 1 <= len(b.get("callback_data", "x").encode()) <= CALLBACK_BYTES
    ]


@dataclass(slots=True)
class Flood:
    """One message a second to a chat after a short burst, 20 a minute to a group, 30 a second to all."""

    clock: Callable[[], float]
    burst: int = 3
    group_per_minute: int = 20
    per_second: int = 30
    on: bool = True
    _sent: dict[int, deque[float]] = field(default_factory=lambda: defaultdict(deque))
    _all: deque[float] = field(default_factory=deque)

    def retry_after(self, chat_id: int, *, group: bool) -> int | None:
        """None: this call is fine and is counted."""
        if not self.on:
            return None
        now = self.clock()
        mine = self._sent[chat_id]
        _forget(mine, now - 60)
        _forget(self._all, now - 1)
        if group and len(mine) >= self.group_per_minute:
            return max(1, round(mine[0] + 60 - now))
        if sum(at > now - self.burst for at in mine) >= self.burst + 1 or len(self._all) >= self.per_second:
            return 1
        mine.append(now)
        self._all.append(now)
        return None


def _forget(times: deque[float], before: float) -> None:
    while times and times[0] <= before:
        times.popleft()
