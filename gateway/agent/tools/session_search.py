"""Searches what was said before, in this namespace only."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from gateway.agent.tools.registry import Arguments, Tool, ToolContext, ToolError
from sessions import store
from sessions.clock import iso
from sessions.db import search
from sessions.db.search import Hit
from sessions.errors import Invalid, NotFound
from sessions.records import Message, Role

SESSIONS = 3
WINDOW = 100_000
SHOWN = 12_000
PAGE = 12_000
_AROUND = 6


class SessionSearchArguments(Arguments):
    query: Annotated[str | None, Field(max_length=500, description="two to five words")] = None
    limit: Annotated[int, Field(ge=1, le=50)] = 20
    message: Annotated[int | None, Field(ge=1, le=2**53, description="its number")] = None
    offset: Annotated[int, Field(ge=0, description="read it from this character on")] = 0


async def session_search(place: ToolContext, arguments: SessionSearchArguments) -> str:
    """Search all that was said here, in this and earlier conversations; or read one message by its number."""
    if arguments.message is not None:
        return await _page(place, arguments.message, arguments.offset)
    if arguments.query is None:
        raise ToolError("give a query, or the number of a message")
    while await place.database.write(search.index_some):
        pass
    try:
        hits = await place.database.read(search.search, arguments.query, ns=place.session.ns, limit=arguments.limit)
    except Invalid as error:
        raise ToolError(str(error)) from error
    if not hits:
        return f"Nothing was said here about {arguments.query!r}. Try other words, or fewer."
    return await place.database.read(_passages, hits)


async def _page(place: ToolContext, message_id: int, offset: int) -> str:
    try:
        found = await place.database.read(store.message_in, place.session.ns, message_id)
    except NotFound as error:
        raise ToolError(str(error)) from error
    text, end = found.content or "", offset + PAGE
    goes_on = f"\n[{len(text) - end} more characters: offset={end}]" if len(text) > end else ""
    return f"{_line(replace(found, content=text[offset:end]))}{goes_on}"


def _passages(conn: Connection, hits: list[Hit]) -> str:
    """Best session first, three at most, each with what stands around its hits."""
    by_session: dict[str, list[Hit]] = {}
    for hit in hits:
        by_session.setdefault(hit.session.id, []).append(hit)
    chosen = list(by_session.values())[:SESSIONS]
    return "\n\n".join(_passage(conn, found, SHOWN // len(chosen)) for found in chosen)


def _passage(conn: Connection, hits: list[Hit], room: int) -> str:
    session = hits[0].session
    wanted: dict[int, Message] = {}
    for hit in hits:
        before = store.last_messages(conn, session.id, _AROUND // 2 + 1, before=hit.message.id + 1)
        after = store.read_messages(conn, session.id, after=hit.message.id, limit=_AROUND // 2)
        new = {message.id: message for message in (*before, *after) if message.content}
        if sum(len(message.content or "") for message in {**wanted, **new}.values()) > room and wanted:
            break
        wanted |= new
    title = session.title or "untitled"
    lines = [f"## {title}, {iso(session.started_at)[:10]} ({session.id})"]
    return "\n".join([*lines, *(_line(wanted[number]) for number in sorted(wanted))])[:room]


def _line(message: Message) -> str:
    who = message.sender or {Role.USER: "user", Role.ASSISTANT: "you", Role.TOOL: message.tool_name}.get(
        message.role, ""
    )
    return f"{iso(message.created_at)[:16]} {who}: {message.content}"


TOOL = Tool(
    name="session_search", arguments=SessionSearchArguments, function=session_search, idempotent=True, reads_only=True
)
