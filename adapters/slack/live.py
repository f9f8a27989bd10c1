"""Shows in Slack what the agent does: answers that grow, and the status beside a chat.

Answers grow as Slack's streams in threads and as edits of a message everywhere else; the status is that of agent sessions where the workspace has
them, else the assistant's.
Who asked last in each place is remembered: Slack wants to know whom a stream is for, and who has waited long is mentioned.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from adapters.base import Activity, TryLater
from adapters.http import Json, text
from adapters.slack.render import render_draft, without_pings
from adapters.slack.web import SlackRefusal, SlackWeb
from adapters.text import off_the_loop
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


_MOST = 11_000
"""Characters of a stream; what is longer is shown when it is whole."""
_EDITED = 2_000
_NOT_HERE = {
    "unknown_method",
    "method_not_supported_for_channel_type",
    "not_allowed",
    "feature_not_enabled",
    "missing_scope",
    "not_allowed_token_type",
    "access_denied",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    address: Address
    written: str


class LiveAnswers:
    def __init__(self, web: SlackWeb, askers: Askers) -> None:
        self._web = web
        self._askers = askers
        self._streams: dict[str, _Stream] = {}
        self._edited: OrderedDict[str, None] = OrderedDict()
        self._has_streams = True
        self.team = ""

    async def show(self, address: Address, draft_id: str | None, text: str) -> str:
        """Shows or changes the preview, and returns its id."""
        shown = without_pings(text)
        if draft_id is None:
            return await self._begin(address, text, shown)
        stream = self._streams.get(draft_id)
        if stream is not None and shown.startswith(stream.written):  # a stream only grows; other changes need edits
            await self._append(draft_id, stream, shown)
        else:
            await self.settle(address, draft_id)
            draft = await off_the_loop(text, render_draft, text)
            await self._web.call(
                "chat.update", channel=address.chat_id, ts=draft_id, text=draft["text"], blocks=draft["blocks"]
            )
        return draft_id

    async def settle(self, address: Address, draft_id: str) -> None:
        """Ends the stream: the preview is a message like any other now, which can be edited and deleted."""
        if draft_id in self._edited:
            return
        self._streams.pop(draft_id, None)
        if self._has_streams and address.thread_id is not None:
            with suppress(SlackRefusal):  # it is no stream, or was ended before
                await self._web.call("chat.stopStream", channel=address.chat_id, ts=draft_id)
        self._edited[draft_id] = None
        if len(self._edited) > _EDITED:
            self._edited.popitem(last=False)

    async def _begin(self, address: Address, text: str, shown: str) -> str:
        asker = self._askers.asker(address)
        can_stream = address.thread_id is not None and (asker or address.kind is ChatKind.DM) and len(shown) < _MOST
        if self._has_streams and can_stream and address.thread_id is not None:
            try:
                started = await self._web.call(
                    "chat.startStream",
                    channel=address.chat_id,
                    thread_ts=address.thread_id,
                    markdown_text=shown,
                    recipient_user_id=asker,
                    recipient_team_id=self.team or None,
                )
            except SlackRefusal as refusal:
                self._has_streams = refusal.error not in _NOT_HERE  # once for the workspace, not for each answer
            else:
                ts = _named(started)
                self._streams[ts] = _Stream(address=address, written=shown)
                return ts
        draft = await off_the_loop(text, render_draft, text)
        sent = await self._web.call(
            "chat.postMessage",
            channel=address.chat_id,
            thread_ts=address.thread_id,
            text=draft["text"],
            blocks=draft["blocks"],
        )
        ts = _named(sent)
        self._edited[ts] = None
        return ts

    async def _append(self, draft_id: str, stream: _Stream, shown: str) -> None:
        more = shown[len(stream.written) : _MOST]
        if not more:
            return
        try:
            await self._web.call("chat.appendStream", channel=stream.address.chat_id, ts=draft_id, markdown_text=more)
        except TryLater as error:
            if error.ambiguous:  # nobody knows what stands there; the next one writes it anew
                self._streams.pop(draft_id, None)
            raise
        except SlackRefusal:
            self._streams.pop(draft_id, None)
            raise
        self._streams[draft_id] = replace(stream, written=stream.written + more)


def _named(sent: Json) -> str:
    if ts := text(sent, "ts"):
        return ts
    raise TryLater("Slack does not name the message that it has taken.", ambiguous=True)


LONGEST = 50
_SESSION = {Activity.WORKING: "processing", Activity.WAITING: "suspended", Activity.IDLE: "active"}
_GONE_FOR_GOOD = {"unknown_method", "missing_scope", "not_allowed_token_type", "feature_not_enabled", "access_denied"}


class Statuses:
    def __init__(self, web: SlackWeb) -> None:
        self._web = web
        self._has_sessions = True
        self._has_status = True

    async def show(self, address: Address, activity: Activity, text: str) -> None:
        """Shows the status in a way that the workspace knows; ways that it refuses are not tried again."""
        # Both ways: agent sessions have no text, and workspaces without them know only the status of the assistant.
        is_session = self._has_sessions and await self._session(address, activity)
        shows_text = activity is Activity.WORKING or not is_session
        if self._has_status and address.thread_id is not None and shows_text:
            try:
                await self._web.call(
                    "assistant.threads.setStatus",
                    channel_id=address.chat_id,
                    thread_ts=address.thread_id,
                    status=text[:LONGEST] if activity is Activity.WORKING else "",
                )
            except SlackRefusal as refusal:
                self._has_status = refusal.error not in _GONE_FOR_GOOD

    async def _session(self, address: Address, activity: Activity) -> bool:
        try:
            await self._web.call(
                "agents.sessions.setStatus",
                channel_id=address.chat_id,
                thread_ts=address.thread_id,
                status=_SESSION[activity],
            )
        except SlackRefusal as refusal:
            self._has_sessions = refusal.error not in _GONE_FOR_GOOD
            return False
        return True
