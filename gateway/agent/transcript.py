"""Converts journal rows into the messages of a model request that endpoints accept, also when rows in between were left out; no I/O.

The JSONL files of sessions are written in `sessions/transcripts.py`.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import eq
from typing import Any
from zoneinfo import ZoneInfo

from gateway.agent.models.interface import JSON, EncodedMessage
from gateway.agent.tokens import size_of
from gateway.texts import say
from sessions.clock import as_time
from sessions.records import Message, Role

MISSING = "[no result: this call was never finished]"
WROTE = "The person wrote: "
"""Before a result that somebody wrote freely: it may answer the question, or be something new."""
_AT = "at"  # when a user message was said; taken off again by `timed`


class EarlierTurn(EncodedMessage):
    """A message of an earlier turn as it is sent, a user's with its time. Where it is changed after all, `plain` is changed: the message
    without its time."""

    __slots__ = ("_at", "_content")

    def __init__(self, turn: JSON, zone: ZoneInfo) -> None:
        sent = with_its_time(turn, zone)
        super().__init__(sent, size_of(sent))
        self._at, self._content = turn.get(_AT), turn["content"]

    @property
    def plain(self) -> JSON:
        return {**self, "content": self._content} | ({} if self._at is None else {_AT: self._at})


def as_turn(message: Message, text: str, parts: Sequence[JSON]) -> JSON | None:
    """Returns the row as a message of a request, with this text; a user's also with these pictures and files. None: it says nothing."""
    match message.role:
        case Role.USER:
            content: Any = [{"type": "text", "text": text}, *parts] if parts else text
            return {"role": "user", "content": content, _AT: message.created_at}
        case Role.ASSISTANT if message.tool_calls:
            return {"role": "assistant", "content": text or None, "tool_calls": message.tool_calls}
        case Role.ASSISTANT if text:  # an empty one says nothing, and several endpoints refuse it
            return {"role": "assistant", "content": without_remarks(text)}
        case Role.TOOL:
            said = f"{WROTE}{text}" if message.sender else text
            return {"role": "tool", "tool_call_id": message.tool_call_id, "content": said}
        case Role.ASSISTANT | Role.SYSTEM:
            return None


NOTHING_SCHEDULED, NOTHING_FORGOTTEN = "run.nothing_scheduled", "run.nothing_forgotten"
NOTHING_SEARCHED = "run.nothing_searched"
"""Lines that the gateway writes below an answer for the person. Small models would write such lines themselves."""


def without_remarks(text: str) -> str:
    for remark in (NOTHING_SCHEDULED, NOTHING_FORGOTTEN, NOTHING_SEARCHED):
        text = text.removesuffix(f"\n\n{say(remark)}")
    return text


def valid(turns: Sequence[JSON]) -> list[JSON]:
    """Returns the messages as endpoints accept them: every call with its result, alternating roles, and a user's message first."""
    return _from_a_user(well_formed(turns))


def well_formed(turns: Sequence[JSON], missing: str = MISSING) -> list[JSON]:
    """Returns the messages with a result for every call (`missing` where there is none) and alternating roles."""
    roles = [turn["role"] for turn in turns]
    if "tool" not in roles and not any(map(eq, roles, roles[1:])) and not any("tool_calls" in turn for turn in turns):
        return list(turns)
    return _alternate(_complete(turns, missing))


def with_time(turns: Sequence[JSON], moment: int, timezone: str) -> list[JSON]:
    """Returns the messages, the last user message with a line in front that says what time it is."""
    start, last = f"{time_line(moment, ZoneInfo(timezone))}\n\n", last_of_user(turns)
    return [
        {**turn, "content": with_start(turn["content"], start)} if i == last else turn for i, turn in enumerate(turns)
    ]


def timed(turns: Sequence[JSON], timezone: str, note: str = "") -> list[JSON]:
    """Returns the messages, every user message with a line in front that says when it was written, and the last one also with `note`. The
    line of a message is the same in every request, so that endpoints can cache it."""
    zone, last = ZoneInfo(timezone), last_of_user(turns)
    found = [turn if isinstance(turn, EarlierTurn) else with_its_time(turn, zone) for turn in turns]
    if last is not None:
        found[last] = with_its_time(_plain(turns[last]), zone, note)
    return found


def _plain(turn: JSON) -> JSON:
    return turn.plain if isinstance(turn, EarlierTurn) else turn


def last_of_user(turns: Sequence[JSON]) -> int | None:
    return next((i for i in range(len(turns) - 1, -1, -1) if turns[i]["role"] == "user"), None)


@lru_cache(maxsize=256)
def time_line(moment: int, zone: ZoneInfo) -> str:
    when = as_time(moment, zone)
    return f"[{when:%A, %Y-%m-%d %H:%M} {zone.key}]"


def with_its_time(turn: JSON, zone: ZoneInfo, note: str = "") -> JSON:
    """Returns one message as `timed` does."""
    if _AT not in turn:
        return turn
    plain = {name: value for name, value in turn.items() if name != _AT}
    lines = [time_line(turn[_AT], zone), *filter(None, [note])]
    return {**plain, "content": with_start(turn["content"], "\n".join(lines) + "\n\n")}


def with_start(content: Any, start: str) -> Any:
    """Returns the content of a message, text or parts, with `start` in front."""
    if isinstance(content, str):
        return start + content
    first, *rest = content
    if first.get("type") == "text":
        return [{"type": "text", "text": start + first["text"]}, *rest]
    return [{"type": "text", "text": start}, first, *rest]


def _complete(turns: Sequence[JSON], note: str) -> list[JSON]:
    """Puts the result of each call directly after it and drops results without a call. Endpoints refuse a request where this is not so, and
    every later one of the session with it."""
    complete: list[JSON] = []
    for i, turn in enumerate(turns):
        if turn["role"] == "tool":
            continue
        complete.append(turn)
        results = _results_after(turns, i) if turn.get("tool_calls") else {}
        for call in turn.get("tool_calls") or ():
            missing = {"role": "tool", "tool_call_id": call["id"], "content": note}
            complete.append(results.get(call["id"], missing))
    return complete


def _results_after(turns: Sequence[JSON], call: int) -> dict[str, JSON]:
    """Returns the results between these calls and the next ones, by id. Not later ones: some models use the same ids in every answer."""
    results: dict[str, JSON] = {}
    for turn in turns[call + 1 :]:
        if turn.get("tool_calls"):
            break
        if turn["role"] == "tool":
            results.setdefault(turn["tool_call_id"], turn)
    return results


def _alternate(turns: Sequence[JSON]) -> list[JSON]:
    """Joins neighbouring messages of one role."""
    merged: list[JSON] = []
    for turn in turns:
        last = merged[-1] if merged else {}
        same = last.get("role") == turn["role"] and turn["role"] in {"user", "assistant"}
        if same and not last.get("tool_calls"):
            first, second = _plain(last), _plain(turn)
            joined = _joined(first.get("content") or "", second.get("content") or "")
            merged[-1] = {**first, **second, "content": joined}
        else:
            merged.append(turn)
    return merged


def _from_a_user(turns: Sequence[JSON]) -> list[JSON]:
    first = next((i for i, turn in enumerate(turns) if turn["role"] == "user"), 0)
    return list(turns[first:])


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}" if first and second else first or second
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
