"""Divides a model's context window between the parts of a prompt."""

from dataclasses import dataclass

from gateway.context import App

SYSTEM_BUDGET, LEAST_SYSTEM = 2_500, 740
"""System prompt and tool schemas together. Small windows have less, but not less than a few tools need."""
NOTES_BUDGET = 4_000
DIGEST_BUDGET = 800
RECALL_BUDGET = 800
SKILLS_BUDGET = 500
WHOLE_BUDGET = 16_300
"""Where the window has room for that, every block has its full budget."""
UNFOLDED_MOST = 4_000
RECENT_SHARE, RECENT_LEAST, RECENT_MOST = 0.08, 4_000, 16_000
NEW_MESSAGE_RESERVE = 4_000
RESULT_CLIP = 8_000
RUN_BUDGET = 24_000
MARGIN = 0.05
_LEVELS = 8
"""History gives way to a long new message in so many steps: else the length of each message would move every cut, and no endpoint could
cache the start of the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the model takes in at once, in tokens. `most`: the largest prompt allowed, after a larger one was refused."""

    size: int = 128_000
    output: int = 4_096
    most: int | None = None

    @property
    def answer(self) -> int:
        """The longest answer: as configured, at most a quarter of the window."""
        return min(self.output, self.size // 4)

    @property
    def whole(self) -> int:
        """The largest prompt, tool schemas included, that leaves something for an answer."""
        room = int(self.size * (1 - MARGIN))
        return room if self.most is None else min(room, self.most)

    @property
    def room(self) -> int:
        """For the prompt, tool schemas included, beside an answer of full length."""
        room = int(self.size * (1 - MARGIN)) - self.answer
        return room if self.most is None else min(room, self.most)

    @property
    def recent(self) -> int:
        """The budget of the recent turns where the window has room for all budgets."""
        return int(min(max(self.size * RECENT_SHARE, RECENT_LEAST), RECENT_MOST))

    @property
    def fixed(self) -> int:
        """The budget of the system prompt and the tool schemas together."""
        scaled = int(SYSTEM_BUDGET * min(1.0, self.room / WHOLE_BUDGET))
        return max(scaled, min(LEAST_SYSTEM, self.room // 4))

    @property
    def unfolded(self) -> int:
        """The most that requests surely show of the end of a conversation, however its messages are long; what is longer has to be folded."""
        left = self.room - self.fixed * 4 // 3  # schemas of tools may go a third beyond their budget
        return min(UNFOLDED_MOST, shares(left, self).recent // 2)

    @property
    def is_small(self) -> bool:
        """Whether not all blocks have their full budgets."""
        return self.room < WHOLE_BUDGET

    def own_prompt(self, left: int, tools: int) -> int:
        """Returns the budget of the agent's prompt and the gateway's blocks in the system prompt. `left`: what callers' system messages
        and the tools, which cost `tools`, leave."""
        # A window with room gives a long prompt of an agent up to a quarter of what is left; a small one keeps to its share.
        return (
            max(self.fixed - tools, min(self.fixed // 3, left))
            if self.is_small
            else max(min(SYSTEM_BUDGET, left // 2), left // 4)
        )

    def answer_beside(self, prompt: int, wanted: int | None = None) -> int:
        """How long the answer to a prompt of this size may be. `wanted`: by a caller, who may have what is left."""
        left = max(int(self.size * (1 - MARGIN)) - prompt, 1)
        return min(self.answer, left) if wanted is None else min(wanted, max(left, self.answer))


def window_of(app: App, model: str | None) -> Window:
    """Returns the window of this model; None: of the one that answers."""
    return Window(size=app.model.window(model), output=app.config.model.max_output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How history is divided: what is in notes and digest, recent turns, and what a search has found."""

    notes: int
    digest: int
    skills: int
    recent: int
    recall: int

    def recent_beside(self, of_memory: int, window: Window) -> int:
        """Returns the budget of the recent turns when notes, digest and skills take `of_memory` tokens: in a small window they get what is left of
        that, however much it is."""
        recent = self.recent + max(0, self.notes + self.digest + self.skills - of_memory)
        return recent if window.is_small else min(window.recent, recent)


def shares(left: int, window: Window, new: int = 0) -> Shares:
    """Divides what is left beside the system prompt and the tools. `new`: what the new message costs."""
    usual = min(NEW_MESSAGE_RESERVE, left // 8)
    most, history = (_for_history(left - each, window) for each in (usual, max(new, usual)))
    level = history * _LEVELS // most if most > 0 else 0
    history = most * level // _LEVELS
    recall = min(RECALL_BUDGET, history // 3)
    rest, most_memory = history - recall, sum(_MEMORY)
    # In a small window the recent turns come before the notes: what is not in them has to be in the notes already.
    recent = min(window.recent, max(rest * 6 // 10, rest - most_memory))
    notes, digest, skills = (min(rest - recent, most_memory) * budget // most_memory for budget in _MEMORY)
    return Shares(notes=notes, digest=digest, skills=skills, recent=recent, recall=recall)


_MEMORY = (NOTES_BUDGET, DIGEST_BUDGET, SKILLS_BUDGET)


def _for_history(left: int, window: Window) -> int:
    full = sum(_MEMORY) + window.recent + RECALL_BUDGET
    return min(full, max(0, left - RUN_BUDGET, left * 3 // 4))


def fair_shares(costs: list[int], budget: int) -> list[int]:
    """Divides the budget: small items get all they need, large ones share the rest equally."""
    shares, left = [0] * len(costs), budget
    for done, i in enumerate(sorted(range(len(costs)), key=lambda i: costs[i])):
        shares[i] = min(costs[i], left // (len(costs) - done))
        left -= shares[i]
    return shares
