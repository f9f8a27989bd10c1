"""Adds the line about a reset above the first answer of the new session."""

from collections.abc import Callable
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from gateway.runs.live_events import LiveEvent
from gateway.runs.services import Services
from gateway.runs.snapshot import Snapshot
from gateway.texts import say
from gateway.texts.times import format_duration
from sessions import store
from sessions.outbox_body import OutboxBody
from sessions.policy import ResetPolicy
from sessions.records import EndReason, Session

P = ParamSpec("P")
T = TypeVar("T")


def reset_line(former: Session, opened_at: int, *, notes: int, policy: ResetPolicy) -> str:
    """Returns the line that says why the conversation is a new one, how many notes the agent made of the former one, and how to go back."""
    if former.end_reason is EndReason.DAILY:
        why = say("session.reset_daily", hour=f"{policy.at_hour:02}:00")
    else:
        silent = format_duration((opened_at - (former.last_user_at or former.started_at)) / 1000)
        why = say("session.reset_idle", idle=silent)
    kept = (say("session.kept_one") if notes == 1 else say("session.kept_other", count=notes)) if notes else ""
    return " ".join(filter(None, (why, kept, say("session.reset_back"))))


class Announcement:
    """The line of one run. It stands above what the chat is sent first: an answer, a question, or an error."""

    def __init__(self, services: Services, run_id: str) -> None:
        self._services = services
        self._run_id = run_id
        self._session_id = ""
        self.text = ""

    def note(self, seen: Snapshot) -> None:
        """Reads whether there is a line to add, so that previews have it from the beginning."""
        policy = self._services.resets.policy(seen.session.session_key)
        before, self.text, self._session_id = self.text, "", seen.session.id
        if seen.former is not None and policy.notify:
            line = reset_line(seen.former, seen.session.started_at, notes=seen.former_notes, policy=policy)
            self.text = f"_{line}_\n\n"
        if self.text != before:
            self._services.live.publish(LiveEvent(self._run_id, "heading", self.text))

    def prepended_to(self, body: OutboxBody | None) -> OutboxBody | None:
        return body if body is None or not self.text else replace(body, text=self.text + body.text)

    def marking_announced(
        self, work: Callable[Concatenate[Connection, P], T], body: OutboxBody | None
    ) -> Callable[Concatenate[Connection, P], T]:
        """Returns the transition `work`, which sends this body, so changed that it also marks the reset as announced. One transaction for
        both: a crash between them would announce it twice or never.
        """
        if body is None or not self.text:
            return work

        def announcing(conn: Connection, *args: P.args, **kwargs: P.kwargs) -> T:
            store.mark_announced(conn, self._session_id)
            return work(conn, *args, **kwargs)

        return announcing
