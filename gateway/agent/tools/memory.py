"""The agent's own notes, in the namespace of the chat."""

from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, model_validator
from sqlalchemy import Connection

from gateway.agent.tools.registry import Arguments, Tool, ToolContext, ToolError
from sessions import memory as notes
from sessions import store
from sessions.errors import NotFound, StateError
from sessions.records import Observation

SHOWN = 100
LONGEST_NUMBER = 18  # more digits may not fit into a column of 64 bits


def _kind(said: object) -> object:
    """Returns the kind; an unknown one becomes `fact`, so that the note is not lost."""
    return said if said in notes.KINDS else "fact"


def _as_text(said: object) -> object:
    """Returns the number of a note as text: models write `57` as well as `"o57"`."""
    return str(said) if isinstance(said, int) else said


class MemoryArguments(Arguments):
    action: Literal["save", "forget", "list"]
    text: Annotated[
        str | None, Field(max_length=notes.MAX_TEXT, description="one complete sentence; to forget: o<number>")
    ] = None
    kind: Annotated[Literal["fact", "preference", "decision", "event"], BeforeValidator(_kind)] = "fact"
    cause: Annotated[str | None, Field(description="why")] = None
    happened: Annotated[str | None, Field(description="YYYY-MM-DD")] = None
    replaces: Annotated[
        str | None, BeforeValidator(_as_text), Field(description="o<number> that is no longer true")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _saves_a_text(cls, said: Any) -> Any:
        """A text without an action is to be saved: small models leave the action out."""
        if isinstance(said, dict) and "action" not in said and cast(dict[str, Any], said).get("text"):
            return {"action": "save", **cast(dict[str, Any], said)}
        return said  # pyright: ignore[reportUnknownVariableType]


async def memory(place: ToolContext, arguments: MemoryArguments) -> str:
    """Your notes, which outlast this conversation."""
    try:
        match arguments.action:
            case "save":
                return await _save(place, arguments)
            case "forget":
                number = _number(arguments.text or arguments.replaces)
                gone = await place.database.write(notes.forget, place.session.ns, number)
                return f"Removed note no. {number}: {gone.text}"
            case "list":
                found = await place.database.read(notes.open_notes, place.session.ns, limit=SHOWN)
                return "\n".join(notes.render(note, None) for note in found) or "There are no notes yet."
    except StateError as error:
        raise ToolError(str(error)) from error


async def _save(place: ToolContext, arguments: MemoryArguments) -> str:
    """Saves the note. When `replaces` names no note, saves it without replacing one."""
    remark = ""
    try:
        number = await _note(place, arguments, _number(arguments.replaces) if arguments.replaces else None)
    except (NotFound, ToolError) as error:  # a small model invents numbers; the note itself is good
        number, remark = await _note(place, arguments, None), f" {error} Nothing was replaced."
    return f"Noted (no. {number}).{remark}"


async def _note(place: ToolContext, arguments: MemoryArguments, replaces: int | None) -> int:
    saved = await place.database.write(
        _save_note,
        place,
        arguments.text or "",
        kind=arguments.kind,
        cause=arguments.cause,
        happened=arguments.happened,
        replaces=replaces,
    )
    return saved.id


def _save_note(conn: Connection, place: ToolContext, text: str, **fields: Any) -> Observation:
    """Saves the note with its source: the last message of a person in this run, or before it."""
    said = store.last_of_person(conn, place.session.id)
    src = [] if said is None else [said]
    return notes.note(conn, place.session.ns, text, place.clock(), session_id=place.session.id, src=src, **fields)


def _number(text: str | int | None) -> int:
    digits = str(text or "").strip().removeprefix("o")
    if not digits.isdecimal() or len(digits) > LONGEST_NUMBER:
        raise ToolError(
            f"I have no note about {text}. The action list shows the notes with their numbers."
            if text
            else "Say which note: its number. The action list shows them."
        )
    return int(digits)


TOOL = Tool(
    name="memory",
    arguments=MemoryArguments,
    function=memory,
    idempotent=True,
    harmless=frozenset({"save", "list"}),
    folder="",
)
