"""Sets the status beside a chat while the agent works: agent sessions where the workspace has them, the assistant's status elsewhere."""

from adapters.base import Activity
from adapters.slack.errors import SlackRefusal
from adapters.slack.web import SlackWeb
from sessions.keys import Address

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
            await self._status(address, address.thread_id, text[:LONGEST] if activity is Activity.WORKING else "")

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

    async def _status(self, address: Address, thread: str, text: str) -> None:
        try:
            await self._web.call(
                "assistant.threads.setStatus", channel_id=address.chat_id, thread_ts=thread, status=text
            )
        except SlackRefusal as refusal:
            self._has_status = refusal.error not in _GONE_FOR_GOOD
