"""Builds the request for the next model call of a run: the system prompt, earlier messages, the new messages, the tools.

The system prompt is made in `system_prompt.py`. Parts that change rarely come first, because endpoints cache the beginning of a request.
Every part is cut by a function that returns no more than its budget, so the request fits into the window whatever the history is. What a
program sends over HTTP is never cut: `InputTooLong` is raised when it does not fit.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import ceil
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from gateway.agent.memory import recall
from gateway.agent.models.interface import JSON, EncodedMessage, InputTooLong, ModelRequest
from gateway.agent.system_prompt import core, newest_lines, whole_sentences
from gateway.agent.tokens import MESSAGE_OVERHEAD, TIME_LINE, Measure, Tokens, size_of
from gateway.agent.transcript import EarlierTurn, as_turn, timed, valid
from gateway.agent.window import RESULT_CLIP, RUN_BUDGET, Shares, Window, fair_shares, shares
from sessions.memory import PromptNote, choose
from sessions.records import Message, Role
from sessions.search.message_index import FoundMessage


def cut_marker(message: Message) -> str:
    """Returns what stands at the end of a text that was cut: where the whole of it can be read."""
    return f"\n[cut; the whole is message {message.id}: session_search with message={message.id} reads it]"


def without_result(message: Message) -> Message:
    """Returns the message with a note instead of its result, or of the arguments of its calls; unchanged where the note would be longer."""
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


def without_text(message: Message) -> Message:
    """Returns the message with a note instead of its text; unchanged where the note would be longer."""
    where = f"[cleared, message {message.id}]"
    return replace(message, content=where) if len(message.content or "") > len(where) else message


BESIDE = 64  # headings of the system prompt and the line about older messages
LEAST_MESSAGE = 48
_CUT_STEP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All that a request is made of. `history`: the newest messages of the session, oldest first, this run's included.

    `gateway_blocks`: returns the blocks about the gateway for tools of these names, safety last. `tools`: the gateway's own, the least
    needed last; `callers_tools`: those of the HTTP call. `exact`: a program sent the new messages, so they may not be cut.
    `folded_to`: id of the last message that is in notes and digest; `older`: how many messages before `history` are in neither.
    `recalled`: messages that a search for the new message has found, best first. `derived`: what earlier requests have computed from the
    same notes and digest.
    """

    system_prompt: str
    gateway_blocks: Callable[[Collection[str]], Sequence[str]]
    history: Sequence[Message]
    message_count: int
    run_id: str
    notes: Sequence[PromptNote] = ()
    digest: str = ""
    derived: dict[str, Any] = field(default_factory=dict[str, Any])
    skills: Sequence[str] = ()
    folded_to: int = 0
    older: int = 0
    recalled: Sequence[FoundMessage] = ()
    layered: Sequence[str] = ()
    tools: Sequence[JSON] = ()
    callers_tools: Sequence[JSON] = ()
    timezone: str = "UTC"
    parts: Callable[[Message], Sequence[JSON]] = lambda _: ()
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """`size`: the estimate of the whole request in tokens. `core`: the system prompt without what memory adds to it. `cut`: of new messages
    that were too long, (characters shown, characters). `blocks`: tokens of each block, and its budget where it has one.
    """

    request: ModelRequest
    size: int
    core: str
    cut: Sequence[tuple[int, int]] = ()
    blocks: Mapping[str, tuple[int, int | None]] = field(default_factory=dict[str, tuple[int, int | None]])


@dataclass(frozen=True, slots=True, kw_only=True)
class _PromptPlan:
    """`left`: tokens beside tools, `core` and the new message. `kept_whole`: ids of messages that are not to be cut. `limits`: tokens of each
    other new message of a user."""

    tools: Sequence[JSON]
    core: str
    left: int
    small: bool
    shares: Shares
    kept_whole: frozenset[int] = frozenset()
    limits: Mapping[int, int] = field(default_factory=dict[int, int])


def build(
    material: Material, tokens: Tokens, *, window: Window, model: str | None = None, wanted_output: int | None = None
) -> Built:
    """Returns the request for the next model call of a run. Raises InputTooLong when it cannot be cut to the window."""
    earlier, own = _divide(material)
    measure = Measure(tokens, model or "", material.parts)
    plan = _plan(material, own, measure, window)
    system = _system_message(material, plan, measure)
    of_core = measure.text(plan.core)
    of_memory = measure.text(system["content"]) - of_core
    recent = plan.shares.recent_beside(of_memory, window)
    cut = _Cutter(measure, plan, material.timezone, recent)
    kept = cut.recent(earlier, material.message_count - len(own))
    context = _context(material, plan, measure, [each.message.id for each in kept] + [each.id for each in own])
    of_kept, of_context = sum(each.cost for each in kept), measure.text(context)
    cut.run = max(0, min(RUN_BUDGET, plan.left - of_memory - of_kept - of_context))
    new = [as_turn(each, cut.clip_own(each), cut.parts_of_own(each)) for each in cut.own(own)]
    turns = valid([turn for turn in [*(each.turn for each in kept), *new] if turn is not None])
    messages: list[JSON] = [system]
    messages += timed(turns, material.timezone, context)
    size = tokens.messages(messages, measure.model) + tokens.tools(plan.tools, measure.model)
    if size > window.whole:
        if material.exact or window.most is not None:
            raise InputTooLong.of(size, window.size, model)
        raise AssertionError(f"a prompt of {size} tokens was made for a window that takes {window.whole}")
    output = window.answer_beside(size, wanted_output)
    request = ModelRequest(messages=messages, tools=plan.tools, model=model, max_output_tokens=output)
    fixed = of_core + tokens.tools(plan.tools, measure.model)
    blocks = {
        "system prompt and tools": (fixed, None),
        "notes, summary and skills": (of_memory, plan.shares.notes + plan.shares.digest + plan.shares.skills),
        "recent messages": (of_kept, recent),
        "found by search": (of_context, plan.shares.recall),
        "the new message, and what the run added": (max(0, size - fixed - of_memory - of_kept - of_context), None),
    }
    return Built(request=request, size=size, core=plan.core, cut=cut.cuts_of(own), blocks=blocks)


def _context(material: Material, plan: _PromptPlan, measure: Measure, shown: Sequence[int]) -> str:
    """Returns the text between the time line and the new message: how many older messages are not shown, and those that a
    search found. `shown`: ids of the messages of the request, in order."""
    start = shown[0] if shown else 0
    before = takewhile(lambda message: message.id < start, material.history)
    gap = sum(material.folded_to < message.id and message.role is not Role.TOOL for message in before)
    gap += material.older
    missing = f"[{gap} older messages not yet summarised; session_search finds them]" if gap else ""
    above = frozenset(shown)
    hidden = [message for message in material.recalled if message.id not in above]
    asked = recall.words_of(material.history, material.run_id) if hidden else ""
    found = recall.block(hidden, plan.shares.recall, measure.text, asked=asked)
    return "\n".join(part for part in (missing, found) if part)


def _divide(material: Material) -> tuple[list[Message], list[Message]]:
    """Splits the history into the messages before this run and the run's own: all from its first message on.

    Where a run began without a user message (/retry, results of the caller's tools), its own begin at the last user message before it.
    """
    history = material.history
    of_runs = [message.run_id for message in history]
    first = of_runs.index(material.run_id) if material.run_id in of_runs else len(history)
    if first == len(history) or history[first].role is not Role.USER:
        first = next((i for i in range(first - 1, -1, -1) if history[i].role is Role.USER), first)
    return list(history[:first]), list(history[first:])


def _plan(material: Material, own: Sequence[Message], measure: Measure, window: Window) -> _PromptPlan:
    given = _given(own, material.run_id) if material.exact else []
    new = measure.together(given)
    callers = measure.tools(material.callers_tools)
    layered = sum(map(measure.text, material.layered)) + 2 * len(material.layered)
    room = window.room - callers - new - layered
    tools = _fitting(material, measure, window, room)
    names = {tool["function"]["name"] for tool in tools}
    left = window.room - callers - new - measure.tools(tools)
    budget = layered + window.own_prompt(left - layered, measure.tools(tools))
    core_text = core(material.system_prompt, material.layered, material.gateway_blocks(names), budget, measure.text)
    left -= measure.text(core_text) + MESSAGE_OVERHEAD + BESIDE
    needed = window.room - left
    if material.exact and needed > window.whole:
        raise InputTooLong.of(needed, window.size, measure.model or None)
    limits: dict[int, int] = {}
    if not material.exact:
        users = [message for message in own if message.role is Role.USER]
        costs = [measure.message(message) for message in users]
        most = max(LEAST_MESSAGE, min(window.size // 2, left - left // 8))
        limits = dict(zip((each.id for each in users), fair_shares(costs, most), strict=True))
        new = sum(limits.values())
        left -= new
    return _PromptPlan(
        tools=[*tools, *material.callers_tools],
        core=core_text,
        left=left,
        small=window.is_small,
        shares=shares(left + new, window, new),
        kept_whole=frozenset(message.id for message in given),
        limits=limits,
    )


def _given(own: Sequence[Message], run_id: str) -> list[Message]:
    """Returns what the caller sent: its messages, and the results of its tools together with the calls that they answer."""
    mine = [i for i, message in enumerate(own) if message.run_id == run_id]
    answered = next((i for i in mine if own[i].role is Role.ASSISTANT), len(own))
    results = [i for i in mine if own[i].role is Role.TOOL and i < answered]
    asked = next((i for i in range(min(results, default=0) - 1, -1, -1) if own[i].tool_calls), None)
    users = [i for i in mine if own[i].role is Role.USER]
    kept: set[int] = {*users, *results, *([] if asked is None else [asked])}
    return [own[i] for i in sorted(kept)]


def _fitting(material: Material, measure: Measure, window: Window, room: int) -> list[JSON]:
    """Returns the tools that fit, in their order: the last ones are left out first. In a small window the tools and the system prompt share
    one budget, because small models answer better there with fewer tools."""
    left, kept = max(0, min(window.room // 3, room // 2)), list[JSON]()
    beside = measure.text(material.system_prompt) + MESSAGE_OVERHEAD + 2 * len(material.gateway_blocks(()))
    for tool in material.tools:
        left -= measure.tool(tool)
        if left < 0 or (window.is_small and not _fits_small([*kept, tool], beside, material, measure, window)):
            break
        kept.append(tool)
    return kept


def _fits_small(tools: Sequence[JSON], beside: int, material: Material, measure: Measure, window: Window) -> bool:
    system = beside + sum(map(measure.text, material.gateway_blocks({tool["function"]["name"] for tool in tools})))
    return measure.tools(tools) + system <= max(window.fixed, system + window.fixed // 3)


def _system_message(material: Material, plan: _PromptPlan, measure: Measure) -> EncodedMessage:
    blocks = [plan.core]
    if skills := newest_lines(material.skills, plan.shares.skills, measure.text):
        blocks.append("Skills that are saved here; view one before you use it:\n" + "\n".join(skills))
    if notes := _notes(material, plan.shares.notes, measure, small=plan.small):
        blocks.append(f"What you know (notes of yours, newest last):\n{notes}")
    if digest := whole_sentences(material.digest, plan.shares.digest, measure.text):
        blocks.append(f"What was talked about before: {digest}")
    content = "\n\n".join(blocks)
    earlier: EncodedMessage | None = material.derived.get("system")
    if earlier is not None and earlier["content"] == content:
        return earlier
    message: JSON = {"role": "system", "content": content}
    new = material.derived["system"] = EncodedMessage(message, size_of(message))
    return new


def _notes(material: Material, budget: int, measure: Measure, *, small: bool) -> str:
    """Returns the lines of the notes that fit. They are chosen once for all requests with the same notes and settings."""
    made_for = (budget, measure.factor, small)
    earlier: tuple[object, str] | None = material.derived.get("notes")
    if earlier is None or earlier[0] != made_for:
        texts = {each.id: each.short if small and each.short is not None else each.text for each in material.notes}
        shown = [each for each in material.notes if texts[each.id]]
        chosen = choose(shown, budget, {each.id: measure.text(texts[each.id]) + 1 for each in shown})
        earlier = material.derived["notes"] = (made_for, "\n".join(texts[each.id] for each in chosen))
    return earlier[1]


class _Earlier(NamedTuple):
    """An earlier message, shortened to the budget of one turn. `made_for`: the settings that it was computed with. `cost`: its tokens.
    `turn`: its message of the request; None when it says nothing."""

    made_for: tuple[int, float, str]
    message: Message
    cost: int
    turn: EarlierTurn | None


class _Cutter:
    """Shortens messages. `recent`: the budget of the recent turns; `run`, to be set before the run's own messages are cut: the budget of what
    the run itself has appended."""

    def __init__(self, measure: Measure, plan: _PromptPlan, timezone: str, recent: int) -> None:
        self._measure = measure
        self._plan = plan
        self._recent = recent
        self._turn = recent // 3  # the most of one earlier turn
        self._timezone = timezone
        self._made_for = (self._turn, measure.factor, timezone)
        self.run = 0

    # --- earlier turns ---

    def recent(self, messages: Sequence[Message], count: int) -> list[_Earlier]:
        """Returns the newest turns that fit, beginning with a user message. The first message shown changes only every few messages, so that
        the endpoint's cache of the beginning stays usable."""
        left, made_for = self._recent, self._made_for
        fitting = list[_Earlier]()
        for message in reversed(messages):
            earlier: _Earlier | None = message.derived.in_requests
            if earlier is None or earlier.made_for != made_for:  # nearly all were made for an earlier request
                earlier = self._earlier(message)
            left -= earlier.cost
            if left < 0:
                break
            fitting.append(earlier)
        fitting.reverse()
        start = len(messages) - len(fitting)
        first = count - len(messages)
        if start > 0 or first > 0:
            step = min(_CUT_STEP, 1 << max(0, (len(fitting) // 4).bit_length() - 1))
            stepped = next((i for i in range(start, len(messages)) if (first + i) % step == 0), start)
            fitting = fitting[stepped - start :]
        opening = next((i for i, each in enumerate(fitting) if each.message.role is Role.USER), len(fitting))
        return fitting[opening:] or self._last_exchange(messages)

    def _earlier(self, message: Message) -> _Earlier:
        """Computes how requests show an earlier message, and keeps it, unless the message has pictures or files: these are read each time."""
        made = self._as_earlier(message)
        if not message.attachments:
            message.derived.in_requests = made
        return made

    def _as_earlier(self, message: Message) -> _Earlier:
        short = self._with_short_arguments(message)
        text = short.content or ""
        whole = self._measure.text(text) <= self._turn
        # Pictures of earlier turns are looked at again as long as they cost no more than a turn may.
        parts = self._measure.parts(short)
        plain = as_turn(
            short,
            text if whole else self._measure.clip(text, self._turn, cut_marker(short)),
            parts if parts and self._measure.beside(short) <= self._turn else (),
        )
        if plain is None:
            return _Earlier(self._made_for, short, self._turn_cost(short), None)
        return _Earlier(self._made_for, short, self._turn_cost(short), EarlierTurn(plain, ZoneInfo(self._timezone)))

    def _last_exchange(self, messages: Sequence[Message]) -> list[_Earlier]:
        """A long run before this one: what it was about, and the end of what it did, so that its thread is not lost."""
        asked = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role is Role.USER), None)
        if asked is None:
            return []
        first = self._earlier(messages[asked])
        left = self._recent - first.cost
        tail: list[_Earlier] = []
        for message in reversed(messages[asked + 1 :]):
            kept = self._earlier(message)
            if kept.cost > left // 4:
                kept = self._as_earlier(without_result(message))
            left -= kept.cost
            if left < 0:
                break
            tail.insert(0, kept)
        while tail and tail[0].message.role is Role.TOOL:
            tail.pop(0)
        return [first, *tail]

    def _turn_cost(self, message: Message) -> int:
        text = min(self._measure.text(message.content or ""), self._turn)
        beside = self._measure.beside(message)
        if message.role is Role.USER and beside > self._turn:
            beside = MESSAGE_OVERHEAD + TIME_LINE
        return text + beside

    def _with_short_arguments(self, message: Message) -> Message:
        """Replaces long arguments of an earlier call, such as the content of a written file, by a short note."""
        too_long = message.tool_calls and self._measure.beside(message) > self._turn // 2
        return without_result(message) if too_long else message

    # --- this run ---

    def own(self, messages: Sequence[Message]) -> list[Message]:
        """Returns this run's own messages, shortened to their budget: first the oldest results and arguments are cleared, then the oldest
        texts, then whole messages are left out. Messages in `kept_whole` stay as they are."""
        kept, whole = list(messages), self._plan.kept_whole
        # By how many tokens the messages are over budget, rounded up to a large step: otherwise every new result would clear an old one, and the
        # endpoint's cache would be lost each time.
        room = self.run + sum(self._plan.limits.values())
        over = sum(self._own_cost(message) for message in kept if message.id not in self._plan.kept_whole) - room
        step = max(1, room // 4)
        over = ceil(over / step) * step if over > 0 else 0
        for shorten in (without_result, without_text):
            for i, message in enumerate(kept[:-1]):
                if over <= 0:
                    return kept
                if message.id not in whole:
                    kept[i] = shorten(message)
                    over -= self._own_cost(message) - self._own_cost(kept[i])
        while over > 0 and (i := self._least_needed(kept)) is not None:
            over -= self._own_cost(kept.pop(i))
        return kept

    def _least_needed(self, kept: Sequence[Message]) -> int | None:
        """Returns the index of the message to leave out next: the oldest but the first, which holds the task; None: only the last is left."""
        free = [i for i, message in enumerate(kept[:-1]) if message.id not in self._plan.kept_whole]
        return next((i for i in free if i > 0), free[0] if free else None)

    def clip_own(self, message: Message) -> str:
        text, limit = message.content or "", self._text_limit(message)
        return text if limit is None else self._measure.clip(text, limit, cut_marker(message))

    def parts_of_own(self, message: Message) -> Sequence[JSON]:
        limit = self._plan.limits.get(message.id)
        return self._measure.parts(message) if limit is None or self._measure.beside(message) <= limit else ()

    def cuts_of(self, own: Sequence[Message]) -> list[tuple[int, int]]:
        """Returns (characters shown, characters) of each new message that was cut."""
        cuts: list[tuple[int, int]] = []
        for message in own:
            text = message.content or ""
            if message.id in self._plan.limits and (shown := self.clip_own(message)) != text:
                cuts.append((max(0, len(shown.removesuffix(cut_marker(message)))), len(text)))
        return cuts

    def _text_limit(self, message: Message) -> int | None:
        """Returns how many tokens of the text are shown; None: all."""
        if message.id in self._plan.kept_whole:
            return None
        if message.role is Role.USER and (limit := self._plan.limits.get(message.id)) is not None:
            return max(0, limit - self._beside_of_own(message))
        result = max(0, min(RESULT_CLIP, self.run // 2))
        return result if message.role is Role.TOOL else max(self._turn, result)

    def _beside_of_own(self, message: Message) -> int:
        limit, beside = self._plan.limits.get(message.id), self._measure.beside(message)
        return MESSAGE_OVERHEAD + TIME_LINE if limit is not None and beside > limit else beside

    def _own_cost(self, message: Message) -> int:
        text, limit = self._measure.text(message.content or ""), self._text_limit(message)
        return (text if limit is None else min(text, limit)) + self._beside_of_own(message)
