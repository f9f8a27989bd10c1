"""The transitions of a run. Each is one transaction, checks the fence, and may be repeated after an ambiguous commit.

The fence is a number that grows with every claim of a run; a worker that claimed it with a smaller one may not write any more.

The journal is the transcript: a model's answer or a tool's result is committed before the next step, so resuming means loading the
tail and doing the next thing.
"""

from sessions.runs.admission import accept, open_session, source_of, start_again
from sessions.runs.claims import claim, claim_farewell, keep_alive, release
from sessions.runs.endings import fail, finish, hand_over, keep_stopped, stop
from sessions.runs.journal import GONE_ON, handed_over, last_call, new_messages, open_calls
from sessions.runs.queries import (
    MAX_TAKEOVERS,
    Accepted,
    ModelAnswer,
    Opening,
    active,
    answered_in,
    counts,
    ended_since,
    get,
    in_flight,
    in_flight_now,
    is_waiting,
    last_route,
    latest,
    newest_since,
    open_questions,
)
from sessions.runs.steps import (
    answered,
    keep_preview,
    keep_shown,
    still_shown,
    take_in_new_messages,
    tool_done,
    tool_started,
)
from sessions.runs.waiting import (
    answer,
    card_names,
    held_up,
    is_asleep,
    may_answer,
    park,
    remind,
    require_no_approval,
    sleep,
    unanswered,
    wake,
    wake_all,
)

__all__ = [
    "GONE_ON",
    "MAX_TAKEOVERS",
    "Accepted",
    "ModelAnswer",
    "Opening",
    "accept",
    "active",
    "answer",
    "answered",
    "answered_in",
    "card_names",
    "claim",
    "claim_farewell",
    "counts",
    "ended_since",
    "fail",
    "finish",
    "get",
    "hand_over",
    "handed_over",
    "held_up",
    "in_flight",
    "in_flight_now",
    "is_asleep",
    "is_waiting",
    "keep_alive",
    "keep_preview",
    "keep_shown",
    "keep_stopped",
    "last_call",
    "last_route",
    "latest",
    "may_answer",
    "new_messages",
    "newest_since",
    "open_calls",
    "open_questions",
    "open_session",
    "park",
    "release",
    "remind",
    "require_no_approval",
    "sleep",
    "source_of",
    "start_again",
    "still_shown",
    "stop",
    "take_in_new_messages",
    "tool_done",
    "tool_started",
    "unanswered",
    "wake",
    "wake_all",
]
