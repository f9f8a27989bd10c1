"""Remembers who asked last in each place: Slack wants to know whom a stream is for, and who has waited long is mentioned."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sessions.keys import Address, ChatKind

LONG_SECONDS = 300.0
_KEPT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    user: str
    at: float
    is_answered: bool = False


class Askers:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._questions: OrderedDict[tuple[str, str | None], _Question] = OrderedDict()

    def note_question(self, address: Address, user: str) -> None:
        place = (address.chat_id, address.thread_id)
        self._questions[place] = _Question(user=user, at=self._clock())
        self._questions.move_to_end(place)
        if len(self._questions) > _KEPT:
            self._questions.popitem(last=False)

    def asker(self, address: Address) -> str | None:
        question = self._questions.get((address.chat_id, address.thread_id))
        return question.user if question is not None else None

    def long_waiting_asker(self, address: Address) -> str | None:
        """Returns the person whose question in a channel has waited so long that they look elsewhere by now."""
        question = self._questions.get((address.chat_id, address.thread_id))
        if question is None or question.is_answered or address.kind is ChatKind.DM:
            return None
        return question.user if self._clock() - question.at > LONG_SECONDS else None

    def note_answer(self, address: Address) -> None:
        place = (address.chat_id, address.thread_id)
        if (question := self._questions.get(place)) is not None:
            self._questions[place] = replace(question, is_answered=True)


def mention(user: str) -> dict[str, Any]:
    """The block that notifies one person."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": f"<@{user}>"}}
