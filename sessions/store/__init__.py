"""Sessions and their messages. Every function is one step of a transaction: `(conn, …)`."""

from sessions.store.append import (
    CHAIN_LENGTH,
    AnswerCost,
    append,
    choose_model,
    count_used,
    rename,
    rewrite,
    set_attachments,
    settle,
    start,
)
from sessions.store.lifecycle import continue_in_child, end, reopen
from sessions.store.queries import (
    active,
    chain,
    ended_before,
    exists,
    get,
    last_messages,
    message_in,
    newest,
    read_messages,
    recent,
    resolve,
    user_text,
)
from sessions.store.removing import delete_session, recount, take_back
from sessions.store.statistics import Stats, stats

__all__ = [
    "CHAIN_LENGTH",
    "AnswerCost",
    "Stats",
    "active",
    "append",
    "chain",
    "choose_model",
    "continue_in_child",
    "count_used",
    "delete_session",
    "end",
    "ended_before",
    "exists",
    "get",
    "last_messages",
    "message_in",
    "newest",
    "read_messages",
    "recent",
    "recount",
    "rename",
    "reopen",
    "resolve",
    "rewrite",
    "set_attachments",
    "settle",
    "start",
    "stats",
    "take_back",
    "user_text",
]
