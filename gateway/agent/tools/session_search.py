"""The session_search tool: searches the messages of this namespace, or reads one of them by its number."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from gateway.agent.memory.recall import excerpt
from gateway.agent.models.interface import ModelError
from gateway.agent.tools.registry import Arguments, Tool, ToolContext, ToolError
from gateway.observe.logging import get_logger
from sessions import memory, store
from sessions.clock import iso
from sessions.errors import Invalid, NotFound
from sessions.memory.vectors import QueryVector
from sessions.records import Message, Observation, Role, Session
from sessions.search import message_index
from sessions.search.days import named_days
from sessions.search.message_index import Hit, SearchScope
from sessions.search.query import any_of_its_words, stems
from sessions.search.ranking import merged

log = get_logger(__name__)

SESSIONS = 3
WINDOW = 100_000
"""Characters of one session, around its hits, that a summary is made from."""
SHOWN = 4_000
"""Characters of all sessions that are shown without a summary. More than that is summarised."""
PAGE = 12_000
BEST = 4
LONGEST_LINE = 1_200
SUMMARY_SECONDS = 45
"""Less than the timeout of the tool, so that without a summary there is time to show the messages."""


class SessionSearchArguments(Arguments):
    query: Annotated[str | None, Field(max_length=500, description="two to five words")] = None
    limit: Annotated[int, Field(ge=1, le=50)] = 20
    message: Annotated[int | None, Field(ge=1, le=2**53, description="its number")] = None
    offset: Annotated[int, Field(ge=0, description="read it from this character on")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _SessionHits:
    """One session: its hits, best first, the messages around them, and the notes that are from its hits."""

    session: Session
    hits: Sequence[Message]
    around: Sequence[Message]
    notes: Sequence[Observation]


async def session_search(place: ToolContext, arguments: SessionSearchArguments) -> str:
    """Search all that was said here, in this and earlier conversations; or read one message by its number."""
    query = (arguments.query or "").strip()
    if not query:
        if arguments.message is None:
            raise ToolError("give a query, or the number of a message")
        return await _page(place, arguments.message, arguments.offset)
    # The index trails the journal, because a message is indexed with the one after it.
    while await place.database.write(message_index.index_some):
        pass
    meaning = None if place.embed is None else await place.embed(query)
    try:
        found = await place.database.read(_find, place, query, arguments.limit, meaning)
    except Invalid as error:
        raise ToolError(str(error)) from error
    if not found:
        return f"Nothing was said here about {query!r}. Try other words, or fewer."
    wanted = stems(query)
    if sum(len(line) for each in found for line in _lines(each.around, wanted)) <= SHOWN:
        return "\n\n".join(_passage(each, each.around, wanted) for each in found)
    loop = asyncio.get_running_loop()
    began, room = loop.time(), SHOWN // len(found)
    first = await _summarised(place, found[0], query, wanted, room, SUMMARY_SECONDS)
    took = loop.time() - began
    # An endpoint may do one after the other: only as many are asked for at once as end in time even then.
    left = SUMMARY_SECONDS - took
    fitting = len(found) if took * (len(found) - 1) <= left else int(left / took) + 1
    others = (
        _summarised(place, each, query, wanted, room, left if number < fitting else 0.0)
        for number, each in enumerate(found[1:], 1)
    )
    return "\n\n".join([first, *await asyncio.gather(*others)])


async def _page(place: ToolContext, message_id: int, offset: int) -> str:
    try:
        found = await place.database.read(store.message_in, place.session.ns, message_id)
    except NotFound as error:
        raise ToolError(str(error)) from error
    text, end = found.content or "", offset + PAGE
    goes_on = f"\n[{len(text) - end} more characters: offset={end}]" if len(text) > end else ""
    return f"{_who(replace(found, content=''))} {text[offset:end]}{goes_on}"


def _find(
    conn: Connection, place: ToolContext, query: str, limit: int, meaning: QueryVector | None = None
) -> list[_SessionHits]:
    """Returns at most three sessions, the best first. Messages of this run are left out."""
    near: Sequence[int] = memory.vectors.nearest(conn, place.session.ns, meaning)
    for day in named_days(query, place.clock(), place.timezone):
        near = merged(message_index.of_day(conn, day, ns=place.session.ns), near)
    hits: Sequence[Hit] = message_index.search(
        conn, query, ns=place.session.ns, limit=limit, without_run=place.run_id, also=near
    )
    # A phrase that nobody used, or too many conditions: any of its words will do.
    if not hits and (plain := any_of_its_words(query, limit)) is not None:
        scope = SearchScope(ns=place.session.ns, without_run=place.run_id)
        hits = message_index.best(conn, plain, scope, limit=limit, also=near)
    by_session: dict[str, list[Hit]] = {}
    for hit in hits:
        by_session.setdefault(hit.session.id, []).append(hit)
    return [_found(conn, place, some) for some in list(by_session.values())[:SESSIONS]]


def _found(conn: Connection, place: ToolContext, hits: Sequence[Hit]) -> _SessionHits:
    session = hits[0].session
    numbers = store.around(conn, session.id, [hit.message.id for hit in hits], WINDOW)
    # Without this run: what the model has just said and searched for would come back to it as a find.
    around = [each for each in store.messages_of(conn, numbers) if each.run_id != place.run_id]
    notes = memory.about(conn, session.ns, {hit.message.id: session.id for hit in hits[:BEST]})
    return _SessionHits(
        session=session,
        hits=[hit.message for hit in hits],
        around=around,
        notes=list({note.id: note for some in notes.values() for note in some}.values()),
    )


async def _summarised(
    place: ToolContext, found: _SessionHits, query: str, wanted: set[str], room: int, seconds: float
) -> str:
    """Returns the fast model's summary with the best hits in full; when the model fails or has no time, the messages around the hits."""
    if place.summarise is not None and seconds > 0:
        try:
            async with asyncio.timeout(seconds):
                summary = await place.summarise(query, _lines(found.around, wanted))
        except (ModelError, TimeoutError) as error:
            log.info("search.not_summarised", session_id=found.session.id, error=str(error) or type(error).__name__)
        else:
            if summary.strip():
                best = sorted(found.hits[:BEST], key=lambda message: message.id)
                return f"{_head(found)}\nSummary: {summary.strip()}\nIn their words:\n" + "\n".join(
                    _lines(best, wanted)
                )
    kept = _centred(found, wanted, room)
    return _passage(found, kept, wanted)


def _centred(found: _SessionHits, wanted: set[str], room: int) -> list[Message]:
    """Returns the hits and the messages around them, up to `room` characters, by id. The best hits are chosen first."""
    place_of = {message.id: at for at, message in enumerate(found.around)}
    hits = [place_of[hit.id] for hit in found.hits if hit.id in place_of]
    order = dict.fromkeys(
        at + step for step in (0, 1, -1, 2, -2, 3, -3) for at in hits if 0 <= at + step < len(place_of)
    )
    kept: list[Message] = []
    for at in order:
        room -= len(_line(found.around[at], wanted))
        if room < 0 and kept:
            break
        kept.append(found.around[at])
    return sorted(kept, key=lambda message: message.id)


def _passage(found: _SessionHits, messages: Sequence[Message], wanted: set[str]) -> str:
    return "\n".join([_head(found), *_lines(messages, wanted)])


def _head(found: _SessionHits) -> str:
    session = found.session
    title = " ".join((session.title or "untitled").split())
    notes = [f"Note {memory.render(note, None)}{' – no longer true' if note.closed_at else ''}" for note in found.notes]
    return "\n".join([f"## {title}, {iso(session.started_at)[:10]} ({session.id})", *notes])


def _lines(messages: Sequence[Message], wanted: set[str]) -> list[str]:
    return [_line(message, wanted) for message in messages]


def _line(message: Message, wanted: set[str] | None = None) -> str:
    """Returns one line with number, time, speaker and text; of a long text the part with the wanted words, or its start."""
    text = " ".join((message.content or "").split())
    shown = excerpt(text, wanted or set(), LONGEST_LINE)
    cut = f" [cut; message={message.id} reads it whole]" if len(shown) < len(text) else ""
    return f"{_who(message)} {shown}{cut}"


def _who(message: Message) -> str:
    who = message.sender or {Role.USER: "user", Role.ASSISTANT: "you", Role.TOOL: message.tool_name}.get(
        message.role, ""
    )
    return f"{message.id} {iso(message.created_at)[:16]} {' '.join((who or '').split())}:"


TOOL = Tool(
    name="session_search",
    arguments=SessionSearchArguments,
    function=session_search,
    idempotent=True,
    reads_only=True,
    folder="",
)
