"""Commands that list what was learned, and remove it."""

from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from gateway.agent.memory.checks import sentences_of
from gateway.commands.base import CommandContext, namespace_of
from gateway.texts import say
from sessions import memory, store
from sessions.clock import as_time
from sessions.errors import NotFound
from sessions.records import Message, Observation, Source
from sessions.search.query import stems

LISTED = 50
LONGEST_QUOTE = 120
_DIGITS = 18


def notes(conn: Connection, chat: CommandContext, _: str) -> str:
    """Lists each note with its number, since when it is known, and from which words."""
    ns = namespace_of(conn, chat)
    everything = memory.open_notes(conn, ns)
    if not everything:
        return say("memory.none")
    found = everything[-LISTED:]
    before = memory.replaced(conn, found)
    lines = [_line(conn, chat, note, before.get(note.supersedes or 0)) for note in found]
    if older := len(everything) - len(found):
        lines.insert(0, say("memory.more_one") if older == 1 else say("memory.more_other", count=older))
    return "\n".join([*lines, "", say("memory.how_to_forget")])


def _line(conn: Connection, chat: CommandContext, note: Observation, before: Observation | None) -> str:
    text = f"{note.text}, because {note.cause}" if note.cause else note.text
    facts = [*([say("memory.since", when=note.happened)] if note.happened else ()), _origin(conn, chat, note)]
    if before is not None:
        facts.append(say("memory.before", text=before.text))
    return say("memory.line", number=note.id, text=text, since="; ".join(facts))


def _origin(conn: Connection, chat: CommandContext, note: Observation) -> str:
    """Returns when and where it was said, and in which words, unless they are those of the note."""
    source = next(iter(store.messages_of(conn, note.src[-1:])), None)
    day = _day(source.created_at if source else note.said_at, chat)
    quote = _quote(note, source)
    session = store.get(conn, note.session_id) if note.session_id and store.exists(conn, note.session_id) else None
    if session is None or session.session_key == chat.session_key:
        return say("memory.said_here_as", day=day, words=quote) if quote else say("memory.said_here", day=day)
    place = _place(session.source, chat)
    return (
        say("memory.said_there_as", day=day, place=place, words=quote)
        if quote
        else say("memory.said_there", day=day, place=place)
    )


def _quote(note: Observation, source: Message | None) -> str:
    sentences = sentences_of(source.content or "") if source else []
    best = max(sentences, key=lambda sentence: len(stems(sentence) & stems(note.text)), default="")
    # A note in the very words of its source needs no quote.
    if best.strip(" .!") == note.text.strip(" .!"):
        return ""
    return best if len(best) <= LONGEST_QUOTE else best[: LONGEST_QUOTE - 1].rstrip() + "…"


def _place(source: str, chat: CommandContext) -> str:
    match source:
        case Source.CLI:
            return say("memory.in_terminal")
        case Source.API | Source.THREAD:
            return say("memory.by_program")
        case Source.JOB:
            return say("memory.in_job")
        case _:
            return say("memory.on_platform", platform=chat.platform_title(source))


def _day(moment: int, chat: CommandContext) -> str:
    zone = ZoneInfo(chat.timezone)
    then = as_time(moment, zone)
    now = as_time(chat.now, zone)
    return f"{then.day} {then:%b}" if then.year == now.year else f"{then.day} {then:%b} {then.year}"


def forget(conn: Connection, chat: CommandContext, number: str) -> str:
    """Removes the note with this number everywhere, and says which it was."""
    digits = number.removeprefix("#").removeprefix("o")  # o12: as notes are called in prompts and search results
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _DIGITS:
        return say("command.usage", usage="/forget N")
    try:
        gone = memory.forget(conn, namespace_of(conn, chat), int(digits))
    except NotFound:
        return say("memory.no_such", number=digits)
    return say("memory.forgotten", number=gone.id, text=gone.text)
