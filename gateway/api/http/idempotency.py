"""Recognises repeated requests: a caller that got no answer may send its request again, and nothing is done twice.

The marks are stored in the inbox table (`sessions/inbox.py`).
"""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from gateway.api.http.endpoint import ApiCall
from gateway.api.http.errors import ApiError, invalid
from sessions import inbox, runs
from sessions.db.sql import lock
from sessions.records import InboxKind, InboxOutcome, InboxRow, Run

IDEMPOTENCY = "Idempotency-Key"
IDEMPOTENCY_HEADERS = {
    IDEMPOTENCY: "The same key and body again within a week: nothing happens twice, and the answer is that of the first time"
}
MOST_CHARACTERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMark:
    """Identifies a request. A repeated request has the same `key` and `fingerprint`. Without a fingerprint the request is never a
    repetition.
    """

    key: str
    fingerprint: str | None = None

    def before(self, conn: Connection) -> InboxRow | None:
        """Returns the row of the first request with this key; None: there is none. Raises ApiError when its body was another one."""
        if self.fingerprint is None:
            return None
        lock(conn, self.key)  # of two at once the second waits here, and then finds the row of the first
        row = inbox.by_dedup_key(conn, self.key)
        if row is not None and row.fingerprint != self.fingerprint:
            raise ApiError(422, f"This {IDEMPOTENCY} was used with another body.", code="idempotency_key_reused")
        return row


RETRY_COUNT = "X-Stainless-Retry-Count"
"""The header that the official client libraries send with a request which they repeat by themselves."""
RETRY_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Recognises a repeated call on a session without an Idempotency-Key. `is_marked`: the client library sent it as
    a retry."""

    fingerprint: str
    is_marked: bool

    @classmethod
    def of(cls, call: ApiCall[Any, Any], session: str) -> "Retry":
        count = call.request.headers.get(RETRY_COUNT, "0")
        fingerprint = call.body_hash.fingerprint(f"{call.request.path} {session}")
        return cls(fingerprint=fingerprint, is_marked=count.isdecimal() and count.strip("0") != "")

    def before(self, conn: Connection, session_key: str, now: int) -> InboxRow | None:
        """Returns the call that this one repeats; None: it repeats none. That is the last call of the session, when its body is the same, it
        is at most ten minutes old, and its caller left before the answer or the client library marked this one as a retry."""
        row = runs.last_call(conn, session_key)
        return row if row is not None and self.matches(row, now) else None

    def matches(self, row: InboxRow, now: int) -> bool:
        is_same = row.fingerprint == self.fingerprint and now - row.created_at <= RETRY_MS
        return is_same and (self.is_marked or row.left_at is not None)


def mark(call: ApiCall[Any, Any], more: str = "") -> RequestMark:
    """Returns the mark of this request. `more` is compared like a part of the body. Raises ApiError for an invalid Idempotency-Key."""
    sent = call.request.headers.get(IDEMPOTENCY)
    if sent is None:
        return RequestMark(key=f"http:{call.key.name}:{secrets.token_hex(16)}")
    if re.fullmatch(r"[!-~]{1,256}", sent) is None:
        message = f"{IDEMPOTENCY} has 1 to {MOST_CHARACTERS} printable ASCII characters."
        raise invalid(message, code="bad_idempotency_key", param=IDEMPOTENCY)
    return RequestMark(
        key=f"http:{call.key.name}:{call.request.path}:{sent}", fingerprint=call.body_hash.fingerprint(more)
    )


async def run_once(call: ApiCall[Any, Any], change: Callable[[Connection, int], str], *, of: Run | None = None) -> str:
    """Runs `change` unless this request did so before. Returns the id that `change` gave. `of`: the mark is deleted together with this run."""
    marked, app = mark(call), call.server.app
    now = app.clock()

    def once(conn: Connection) -> str:
        before = marked.before(conn)
        if before is not None:
            return before.changed or ""
        changed = change(conn, now)
        if marked.fingerprint is not None:
            note = InboxRow(
                dedup_key=marked.key,
                session_key=of.session_key if of else inbox.NOTES,
                kind=InboxKind.COMMAND,
                changed=changed,
                fingerprint=marked.fingerprint,
            )
            inbox.put(conn, note, now, outcome=InboxOutcome.EXECUTED, run_id=of.id if of else None)
        return changed

    return await app.database.write(once)
