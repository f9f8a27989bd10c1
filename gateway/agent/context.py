"""What the model is sent: a bounded selection, stable parts first, so that prompt caches hold.

Every block is cut by a function that returns no more than its budget, so the sum is bounded whatever the history is.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from typing import Any
from zoneinfo import ZoneInfo

from gateway.agent.asking import JSON, ModelRequest
from gateway.agent.prompts import prompt
from gateway.agent.tokens import Tokens
from sessions.records import Message, Role

SYSTEM_BUDGET = 2_500
OBSERVATIONS_BUDGET = 4_000
RECENT_BUDGET = 4_000
TURN_CLIP = 1_000
NEW_MESSAGE_BUDGET = 4_000
RESULT_CLIP = 8_000
RUN_BUDGET = 24_000
FIXED = 16_300
MESSAGE_OVERHEAD = 4
_CUT_STEP = 8
_MISSING = "[no result: this call was never finished]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the model takes in at once, in tokens."""

    size: int = 128_000
    output: int = 4_096

    @property
    def scale(self) -> float:
        """How much of each budget fits into this window."""
        return min(1.0, max(0.05, (self.size - self.output - self.size * 0.05) / FIXED))

    @property
    def run(self) -> int:
        left = int(self.size * 0.95) - self.output - int(FIXED * self.scale)
        return max(min(RUN_BUDGET, left), int(2_000 * self.scale))

    def shrunk(self, times: int) -> "Window":
        """For a request that was refused as too long: from what our requests take at most, halved each time."""
        most = min(self.size, FIXED + RUN_BUDGET + self.output)
        size = max(2_000, most >> times)
        return Window(size=size, output=min(self.output, size // 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All that a prompt is made of. `history` are the newest messages of the session, oldest first, this run's included."""

    system_prompt: str
    notes: Sequence[str]
    skills: Sequence[str]
    history: Sequence[Message]
    message_count: int
    run_id: str
    layered: Sequence[str] = ()
    timezone: str = "UTC"
    images: Callable[[Message], Sequence[JSON]] = lambda _: ()


def build(
    material: Material, tools: Sequence[JSON], tokens: Tokens, *, window: Window, model: str | None = None
) -> ModelRequest:
    """The request for the next step of a run."""
    cut = _Cutter(tokens, model or "", window)
    recent, own = _divide(material)
    kept = cut.recent(recent, material.message_count - len(own))
    missing = material.message_count - len(own) - len(kept)
    turns = [*_as_turns(kept, cut.clip_turn, material.images), *_as_turns(cut.own(own), cut.clip_own, material.images)]
    system = _system(material, cut, missing)
    messages = [{"role": "system", "content": system}, *_from_a_user(_alternate(_complete(turns)))]
    _add_context(messages, own or kept, material.timezone)
    return ModelRequest(messages=messages, tools=tools, model=model, max_output_tokens=window.output)


def _divide(material: Material) -> tuple[list[Message], list[Message]]:
    """What was there before this run, and what is its own: all from its first message on.

    A run that began without a message (/retry, results of the caller's tools) is about the last user message before it.
    """
    history = material.history
    first = next((i for i, message in enumerate(history) if message.run_id == material.run_id), len(history))
    if first == len(history) or history[first].role is not Role.USER:
        first = next((i for i in range(first - 1, -1, -1) if history[i].role is Role.USER), first)
    return list(history[:first]), list(history[first:])


class _Cutter:
    def __init__(self, tokens: Tokens, model: str, window: Window) -> None:
        self._tokens = tokens
        self._model = model
        self._window = window
        self._scale = window.scale

    def _budget(self, of: int) -> int:
        return int(of * self._scale)

    def clip(self, text: str, budget: int) -> str:
        return self._tokens.clip(text, self._budget(budget), self._model)

    def clip_turn(self, message: Message) -> str:
        return self.clip(message.content or "", TURN_CLIP)

    def clip_own(self, message: Message) -> str:
        text = message.content or ""
        if message.role is Role.TOOL:
            return self._tokens.clip(text, self._result_clip, self._model)
        return self._tokens.clip(
            text, self._budget(NEW_MESSAGE_BUDGET), self._model, marker=f"\n[cut; the whole is message {message.id}]"
        )

    @property
    def _result_clip(self) -> int:
        return min(RESULT_CLIP, self._window.run // 2)

    def lines(self, lines: Sequence[str], budget: int) -> list[str]:
        """The newest lines that fit."""
        left = self._budget(budget)
        kept: list[str] = []
        for line in reversed(lines):
            left -= self._tokens.text(line, self._model) + 1
            if left < 0:
                break
            kept.insert(0, line)
        return kept

    def recent(self, messages: Sequence[Message], count: int) -> list[Message]:
        """The newest turns that fit, from a user message on; the cut moves only every few messages, so that caches hold."""
        left = self._budget(RECENT_BUDGET)
        messages = [self._with_short_arguments(message) for message in messages]
        start = len(messages)
        for i in range(len(messages) - 1, -1, -1):
            left -= self._cost(messages[i], self._budget(TURN_CLIP))
            if left < 0:
                break
            start = i
        first = count - len(messages)
        if start > 0 or first > 0:
            stepped = next((i for i in range(start, len(messages)) if (first + i) % _CUT_STEP == 0), start)
            start = stepped if stepped < len(messages) else start
        while start < len(messages) and messages[start].role is not Role.USER:
            start += 1
        return list(messages[start:])

    def own(self, messages: Sequence[Message]) -> list[Message]:
        """This run's own messages. When they grow too large the oldest results and arguments are cleared, then the oldest texts,
        and what is still too much is left out."""
        kept = list(messages)
        over = self._over(kept)
        for shorten in (_without_result, _without_text):
            for i, message in enumerate(kept[:-1]):
                if over <= 0:
                    return kept
                kept[i] = shorten(message)
                over -= self._own_cost(message) - self._own_cost(kept[i])
        while over > 0 and len(kept) > 1:
            over -= self._own_cost(kept.pop(1 if len(kept) > 2 else 0))  # the first says what it is all about
        return kept

    def _over(self, own: Iterable[Message]) -> int:
        """In large steps, so that not every new result clears another old one and with it what the model has cached."""
        room = self._window.run + self._budget(NEW_MESSAGE_BUDGET)
        over = sum(map(self._own_cost, own)) - room
        step = max(1, room // 4)
        return ceil(over / step) * step if over > 0 else 0

    def _with_short_arguments(self, message: Message) -> Message:
        """What was written into a file in an earlier turn need not be read again with every answer."""
        too_long = message.tool_calls and self._calls(message) > self._budget(TURN_CLIP) // 2
        return _without_result(message) if too_long else message

    def _own_cost(self, message: Message) -> int:
        return self._cost(message, self._result_clip if message.role is Role.TOOL else self._budget(NEW_MESSAGE_BUDGET))

    def _cost(self, message: Message, clip: int) -> int:
        text = min(self._tokens.text(message.content or "", self._model), clip)
        return text + self._calls(message) + MESSAGE_OVERHEAD

    def _calls(self, message: Message) -> int:
        return sum(self._tokens.text(json.dumps(call), self._model) for call in message.tool_calls or ())


def _without_result(message: Message) -> Message:
    where = f"[cleared, message {message.id}]"
    if message.role is Role.TOOL and len(message.content or "") > len(where):
        return replace(message, content=where)
    if message.tool_calls:
        return replace(message, tool_calls=[_without_arguments(call, where) for call in message.tool_calls])
    return message


def _without_arguments(call: JSON, where: str) -> JSON:
    arguments = json.dumps({"cleared": where})
    if len(call["function"]["arguments"]) <= len(arguments):
        return call
    return {**call, "function": {**call["function"], "arguments": arguments}}


def _without_text(message: Message) -> Message:
    where = f"[cleared, message {message.id}]"
    return replace(message, content=where) if len(message.content or "") > len(where) else message


def _system(material: Material, cut: _Cutter, missing: int) -> str:
    own = cut.clip("\n\n".join([material.system_prompt.strip(), prompt("house"), *material.layered]), SYSTEM_BUDGET)
    blocks = [own]
    if material.skills:
        blocks.append(
            "Skills that you have saved; view one before you use it:\n" + "\n".join(cut.lines(material.skills, 500))
        )
    notes = cut.lines(material.notes, OBSERVATIONS_BUDGET)
    if notes:
        blocks.append("What you know (notes of yours, newest last):\n" + "\n".join(notes))
    if missing > 0:
        blocks.append(f"[{missing} older messages not yet summarised; session_search finds them]")
    return "\n\n".join(blocks)


def _as_turns(
    messages: Sequence[Message], clip: Callable[[Message], str], images: Callable[[Message], Sequence[JSON]]
) -> list[JSON]:
    turns: list[JSON] = []
    for message in messages:
        text = clip(message)
        match message.role:
            case Role.USER:
                pictures = list(images(message))
                turns.append(
                    {"role": "user", "content": [{"type": "text", "text": text}, *pictures] if pictures else text}
                )
            case Role.ASSISTANT if message.tool_calls:
                turns.append({"role": "assistant", "content": text or None, "tool_calls": message.tool_calls})
            case Role.ASSISTANT if text:  # an empty one says nothing, and several endpoints refuse it
                turns.append({"role": "assistant", "content": text})
            case Role.TOOL:
                turns.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": text})
            case Role.ASSISTANT | Role.SYSTEM:
                pass
    return turns


def _complete(turns: Sequence[JSON]) -> list[JSON]:
    """Each call directly followed by its result, and no result without its call: anything else bricks a session."""
    complete: list[JSON] = []
    for i, turn in enumerate(turns):
        if turn["role"] == "tool":
            continue
        complete.append(turn)
        results = _results_after(turns, i) if turn.get("tool_calls") else {}
        for call in turn.get("tool_calls") or ():
            missing = {"role": "tool", "tool_call_id": call["id"], "content": _MISSING}
            complete.append(results.get(call["id"], missing))
    return complete


def _results_after(turns: Sequence[JSON], call: int) -> dict[str, JSON]:
    """Up to the next calls only: some models begin to count their ids anew with every answer."""
    results: dict[str, JSON] = {}
    for turn in turns[call + 1 :]:
        if turn.get("tool_calls"):
            break
        if turn["role"] == "tool":
            results.setdefault(turn["tool_call_id"], turn)
    return results


def _alternate(turns: Sequence[JSON]) -> list[JSON]:
    """Neighbours of one role become one message."""
    merged: list[JSON] = []
    for turn in turns:
        last = merged[-1] if merged else {}
        same = last.get("role") == turn["role"] and turn["role"] in {"user", "assistant"}
        if same and not last.get("tool_calls"):
            merged[-1] = {**last, **turn, "content": _joined(last["content"] or "", turn["content"] or "")}
        else:
            merged.append(turn)
    return merged


def _from_a_user(turns: Sequence[JSON]) -> Sequence[JSON]:
    first = next((i for i, turn in enumerate(turns) if turn["role"] == "user"), 0)
    return turns[first:]


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}" if first and second else first or second
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _add_context(messages: list[JSON], own: Sequence[Message], timezone: str) -> None:
    """The time of the newest user message, not of the call, so that the steps of one run share their prefix."""
    said = [message.created_at for message in own if message.role is Role.USER]
    at = next((i for i in range(len(messages) - 1, -1, -1) if messages[i]["role"] == "user"), None)
    if at is None or not said:
        return
    when = datetime.fromtimestamp(said[-1] / 1000, UTC).astimezone(ZoneInfo(timezone))
    content = messages[at]["content"]
    block = f"[{when:%A, %Y-%m-%d %H:%M} {timezone}]\n\n"
    if isinstance(content, str):
        messages[at] = {**messages[at], "content": block + content}
    else:
        first, *rest = content
        messages[at] = {**messages[at], "content": [{"type": "text", "text": block + first["text"]}, *rest]}
