"""Each tool in a place of its own: what it does, and what it tells a model that uses it wrongly."""

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.models.interface import JSON
from gateway.agent.tools import files, skill
from gateway.agent.tools.registry import Arguments, HumanQuestion, Tool, Toolbox, ToolContext, is_allowed
from gateway.attachments import outgoing_files
from sessions import store
from sessions.records import CallOptions, Message, Role
from tests.unit.gateway.agent.tools.conftest import started

ALL = Toolbox.of(["memory", "session_search", "skill", "files", "ask_human"])


@pytest.fixture
def elsewhere(place: ToolContext) -> ToolContext:
    """The same agent in a chat with a memory of its own."""
    return replace(place, session=started(place.database, "8", "stranger"))


async def use(place: ToolContext, tool_name: str, /, **arguments: Any) -> Any:
    tool = ALL.tools.get(tool_name)
    assert tool is not None
    return await tool.run(place, json.dumps(arguments))


# --- what a tool is ------------------------------------------------------------------------------------------------


class WordsArguments(Arguments):
    count: int = 1


def made(function: Any, **fields: Any) -> Tool:
    return Tool(name="made", arguments=WordsArguments, function=function, **fields)


async def test_a_tool_that_takes_too_long_is_stopped(place: ToolContext):
    async def slow(*_: object) -> str:
        await asyncio.Event().wait()
        return ""

    assert await made(slow, timeout=0.01).run(place, "{}") == "[made took longer than 0.01 s and was stopped]"


async def test_long_output_is_cut_with_a_note(place: ToolContext):
    async def wordy(_: ToolContext, arguments: WordsArguments) -> str:
        return "x" * arguments.count

    assert await made(wordy, output_limit=10).run(place, '{"count": 15}') == "xxxxxxxxxx\n[cut: 5 more characters]"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{no", "no JSON"),
        ('{"not_json": "{no"}', "no JSON"),
        ("[1]", "no JSON object"),
        ('{"count": "many"}', "count: Input should be a valid integer"),
    ],
)
async def test_wrong_arguments_are_explained(place: ToolContext, arguments: str, told: str):
    async def never(*_: object) -> str:
        raise AssertionError

    answer = await made(never).run(place, arguments)
    assert str(answer).startswith("[wrong arguments for made: ")
    assert told in str(answer)


async def test_no_arguments_at_all_are_an_empty_object(place: ToolContext):
    async def ok(*_: object) -> str:
        return "ok"

    assert await made(ok).run(place, "") == "ok"


def test_schemas_are_lean_complete_and_made_once():
    schemas: list[JSON] = ALL.schemas
    assert [schema["function"]["name"] for schema in schemas] == list(ALL.tools)
    assert all(one is other for one, other in zip(schemas, ALL.schemas, strict=True))
    for schema in schemas:
        assert schema["function"]["description"]
        assert "title" not in schema["function"]["parameters"]
    properties = schemas[0]["function"]["parameters"]["properties"]
    assert properties["cause"] == {"type": "string", "description": "why"}


def test_a_toolbox_leaves_out_what_it_does_not_know_and_what_it_must_not_offer():
    box = Toolbox.of(["memory", "telepathy", "files"])
    assert list(box.tools) == ["memory", "files"]
    files = {"type": "function", "function": {"name": "files"}}
    assert list(box.beside(CallOptions(tools=(files,))).tools) == ["memory"]
    forced = CallOptions(tools=(files,), sampling={"tool_choice": "required"})
    assert not box.beside(forced).tools
    assert box.beside(CallOptions()) is box
    assert box.tools.get("telepathy") is None


# --- memory --------------------------------------------------------------------------------------------------------


async def test_notes_are_kept_replaced_and_forgotten(place: ToolContext):
    assert await use(place, "memory", action="list") == "There are no notes yet."
    assert await use(place, "memory", action="save", text="Lives in Oslo", cause="a job") == "Noted (no. 1)."
    assert await use(place, "memory", action="save", text="Lives in Bergen", replaces="o1") == "Noted (no. 2)."
    listed = await use(place, "memory", action="list")
    assert "Bergen" in listed
    assert "Oslo" not in listed
    assert await use(place, "memory", action="forget", text="o2") == "Removed note no. 2: Lives in Bergen"
    assert await use(place, "memory", action="list") == "There are no notes yet."


async def test_the_same_note_twice_is_one(place: ToolContext):
    assert await use(place, "memory", text="Likes tea") == "Noted (no. 1).", "a text without an action is to be saved"
    assert await use(place, "memory", action="save", text=" Likes  tea ") == "Noted (no. 1)."


async def test_notes_never_leave_their_namespace(place: ToolContext, elsewhere: ToolContext):
    await use(place, "memory", action="save", text="A secret")
    assert await use(elsewhere, "memory", action="list") == "There are no notes yet."
    assert "no open note o1" in await use(elsewhere, "memory", action="forget", text="o1")
    assert "no open note o1" in await use(elsewhere, "memory", action="save", text="x", replaces="o1")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"action": "save"}, "1 to 2000 characters"),
        ({"action": "forget"}, "Say which note"),
        ({"action": "forget", "text": "the first"}, "I have no note about the first."),
        ({"action": "save", "text": "x" * 2_001}, "at most 2000"),
        ({"action": "dance"}, "action: "),
    ],
)
async def test_what_memory_does_not_take(place: ToolContext, arguments: dict, told: str):
    assert told in await use(place, "memory", **arguments)


@pytest.mark.parametrize(
    "filled",
    [
        {"replaces": "", "cause": "", "happened": ""},
        {"replaces": None, "kind": None, "cause": None},
        {"kind": "", "replaces": " "},
        {"kind": "information"},
        {"replaces": "o99"},
        {"replaces": "none"},
        {"replaces": "9" * 30},
    ],
)
async def test_a_note_is_saved_whatever_a_small_model_fills_in(place: ToolContext, filled: dict):
    assert "Noted (no. 1)." in await use(place, "memory", action="save", text="Ann lives in Oslo", **filled)
    assert " fact: Ann lives in Oslo" in await use(place, "memory", action="list")


async def test_an_empty_file_can_be_written(place: ToolContext):
    assert "Wrote 0 characters" in await use(place, "files", action="write", path="empty.txt", content="")


# --- session_search ------------------------------------------------------------------------------------------------


async def test_search_finds_the_passage_and_only_here(place: ToolContext, elsewhere: ToolContext):
    said = ["The boiler broke", "Call the plumber", "His number is 5551234"]
    new = [Message(role=Role.USER, content=text) for text in said]
    place.database.write_now(store.append, place.session.id, new, 5)
    found = await use(place, "session_search", query="plumber")
    assert all(text in found for text in said)
    assert "Nothing was said here" in await use(elsewhere, "session_search", query="plumber")
    assert "Nothing was said here" in await use(place, "session_search", query="zebra")


@pytest.mark.parametrize(("seconds", "asked", "summaries"), [(10, 3, 3), (20, 2, 2), (50, 1, 0)])
async def test_only_as_many_summaries_are_asked_for_as_end_in_time_one_after_the_other(
    place: ToolContext, monkeypatch: pytest.MonkeyPatch, seconds: int, asked: int, summaries: int
):
    loop, passed, one, told = asyncio.get_running_loop(), 0.0, asyncio.Lock(), list[str]()
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + passed)

    async def summarise(query: str, lines: Sequence[str]) -> str:
        """As an endpoint that serves one request at a time."""
        nonlocal passed
        told.append(f"{query}: {len(lines)}")
        async with one:
            passed += seconds
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return "he came"

    for chat in ("11", "12", "13"):
        new = [Message(role=Role.USER, content=f"the plumber came {chat} {'words ' * 300}")] * 2
        place.database.write_now(store.append, started(place.database, chat, "owner").id, new, 5)
    found = await use(replace(place, summarise=summarise), "session_search", query="plumber")
    assert (found.count("Summary: he came"), told) == (summaries, ["plumber: 2"] * asked)
    assert all(f"the plumber came {chat}" in found for chat in ("11", "12", "13")), "the messages stand for the others"


async def test_a_search_that_makes_no_sense_is_explained_or_finds_nothing(place: ToolContext):
    for query in ('"', "AND", "( OR )", "*", "a@b.com", "it's"):
        assert isinstance(await use(place, "session_search", query=query), str)
    assert "give a query" in await use(place, "session_search", query="")


async def test_a_message_is_read_page_by_page_and_only_here(place: ToolContext, elsewhere: ToolContext):
    text = "".join(f"line {number}\n" for number in range(3_000))
    said = [Message(role=Role.USER, content=text)]
    place.database.write_now(store.append, place.session.id, said, 1)
    first = await use(place, "session_search", message=1)
    assert f"user: {text[:12_000]}\n[{len(text) - 12_000} more characters: offset=12000]" in first
    assert (await use(place, "session_search", message=1, offset=24_000, query="")).endswith(text[24_000:])
    assert "There is no message 1 here" in await use(elsewhere, "session_search", message=1)
    assert "Nothing was said here about 'tea'" in await use(place, "session_search", message=1, query="tea"), (
        "a query wins"
    )
    assert "give a query" in await use(place, "session_search", query="")


# --- skill ---------------------------------------------------------------------------------------------------------


async def test_a_pipe_instead_of_a_skill_holds_nothing_up(place: ToolContext):
    (place.skills / "trap").mkdir(parents=True)
    os.mkfifo(place.skills / "trap" / "SKILL.md")
    async with asyncio.timeout(10):
        assert await use(place, "skill", action="list") == "There are no skills yet."
        assert "there is no skill trap" in await use(place, "skill", action="view", name="trap")


async def test_a_skill_is_saved_listed_changed_viewed_and_deleted(place: ToolContext):
    assert await use(place, "skill", action="list") == "There are no skills yet."
    await use(place, "skill", action="save", name="report", content="# Weekly report\n\nOn Fridays.")
    assert skill.listing(place.skills) == ["report: Weekly report"]
    await use(place, "skill", action="save", name="report", content="# Monthly report, at the end")
    assert await use(place, "skill", action="list") == "report: Monthly report, at the end"
    assert "Monthly" in await use(place, "skill", action="view", name="report")
    assert (place.skills / "report" / "SKILL.md").stat().st_mode & 0o777 == 0o600
    assert await use(place, "skill", action="delete", name="report") == "Deleted the skill report."
    assert skill.listing(place.skills) == []


@pytest.mark.parametrize("name", ["../x", "", "A", "a/b", ".", "x" * 64, "a\0b", None])
async def test_names_of_skills_are_plain(place: ToolContext, name: str | None):
    assert "lower-case letters" in await use(place, "skill", action="save", name=name, content="x")


async def test_skills_belong_to_the_namespace_that_saved_them_and_those_of_the_admin_to_all(
    place: ToolContext, elsewhere: ToolContext
):
    await use(place, "skill", action="save", name="report", content="Mine")
    assert await use(elsewhere, "skill", action="list") == "There are no skills yet."
    assert "there is no skill report" in await use(elsewhere, "skill", action="view", name="report")
    assert "there is no skill report" in await use(elsewhere, "skill", action="delete", name="report")
    await use(elsewhere, "skill", action="save", name="report", content="Theirs")
    assert await use(place, "skill", action="view", name="report") == "Mine\n"
    assert await use(elsewhere, "skill", action="view", name="report") == "Theirs\n"

    (place.skills / "greet").mkdir()
    (place.skills / "greet" / "SKILL.md").write_text("For all")
    for each in (place, elsewhere):
        assert "greet: For all" in await use(each, "skill", action="list")
        assert "administrator" in await use(each, "skill", action="delete", name="greet")
    assert await use(elsewhere, "skill", action="delete", name="report") == "Deleted the skill report."
    assert await use(place, "skill", action="view", name="report") == "Mine\n"


async def test_skills_that_are_not_there_or_empty(place: ToolContext):
    assert "there is no skill x" in await use(place, "skill", action="view", name="x")
    assert "there is no skill x" in await use(place, "skill", action="delete", name="x")
    assert "save needs content" in await use(place, "skill", action="save", name="x", content=" ")


# --- files ---------------------------------------------------------------------------------------------------------


async def test_files_are_written_read_listed_and_deleted(place: ToolContext):
    assert await use(place, "files", action="list") == "There are no files here yet."
    assert await use(place, "files", action="write", path="a/b.md", content="tëxt") == "Wrote 4 characters to a/b.md."
    assert (await use(place, "files", action="read", path="/a/b.md")).splitlines()[1:-1] == ["tëxt"]
    assert await use(place, "files", action="list") == "a/b.md  5 bytes"
    assert await use(place, "files", action="list", path="a/b.md") == "a/b.md  5 bytes"
    assert await use(place, "files", action="delete", path="a/b.md") == "Deleted a/b.md."
    assert "there is no a/b.md" in await use(place, "files", action="read", path="a/b.md")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "..", "/../etc/passwd", "a/../../owner2/x"])
@pytest.mark.parametrize("action", ["read", "write", "list", "delete"])
async def test_nothing_outside_of_the_workspace_is_touched(place: ToolContext, path: str, action: str):
    assert "outside your workspace" in await use(place, "files", action=action, path=path, content="x")


@pytest.mark.parametrize("action", ["read", "write", "list", "delete"])
async def test_links_lead_nowhere_outside(place: ToolContext, tmp_path: Path, action: str):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("k")
    place.workspace.mkdir(parents=True)
    (place.workspace / "out").symlink_to(secret)
    (place.workspace / "key").symlink_to(secret / "key")
    for path in ("out/key", "key", "out"):
        assert "outside your workspace" in await use(place, "files", action=action, path=path, content="x")
    assert (secret / "key").read_text() == "k"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"action": "read", "path": "a\0b"}, "zero bytes"),
        ({"action": "read", "path": "folder"}, "is a folder"),
        ({"action": "delete", "path": "folder"}, "is a folder"),
        ({"action": "write", "path": "folder", "content": "x"}, "is a folder"),
        ({"action": "write", "path": ".", "content": "x"}, "needs the path of a file"),
        ({"action": "write", "path": "x"}, "write needs content"),
        ({"action": "write", "path": "x" * 300, "content": "x"}, "File name too long"),
        ({"action": "read", "path": "binary"}, "no text file"),
        ({"action": "write", "path": "file/below", "content": "x"}, "file/below"),
        ({"action": "write", "path": "big", "content": "x" * (files.MAX_FILE + 1)}, "at most 1000000"),
    ],
)
async def test_what_files_do_not_do(place: ToolContext, arguments: dict, told: str):
    (place.workspace / "folder").mkdir(parents=True)
    (place.workspace / "file").write_text("x")
    (place.workspace / "binary").write_bytes(b"\x7fELF\0\0")
    assert told in await use(place, "files", **arguments)


async def test_a_big_file_is_read_in_part(place: ToolContext):
    place.workspace.mkdir(parents=True)
    (place.workspace / "big").write_text("x" * 3_000_000)
    read = await use(place, "files", action="read", path="big")
    assert len(read) < 40_000
    assert "more characters]" in read


async def test_a_pipe_in_the_workspace_holds_nobody_up(place: ToolContext):
    place.workspace.mkdir(parents=True)
    os.mkfifo(place.workspace / "pipe")
    async with asyncio.timeout(30):
        assert "no ordinary file" in await use(place, "files", action="read", path="pipe")


async def test_a_write_that_was_cut_off_leaves_the_old_file(place: ToolContext):
    await use(place, "files", action="write", path="a", content="old")
    await use(place, "files", action="write", path="a", content="new")
    assert [entry.name for entry in place.workspace.iterdir()] == ["a"]


# --- ask_human -----------------------------------------------------------------------------------------------------


async def test_a_question_is_asked_with_its_options(place: ToolContext):
    asked = await use(place, "ask_human", question="Which?", options=["x" * 200, "b"])
    assert asked == HumanQuestion(question="Which?", options=("x" * 100, "b"))
    assert "wrong arguments" in str(await use(place, "ask_human", question=""))


def test_a_repeated_call_sends_what_the_first_one_took(place: ToolContext) -> None:
    place.workspace.mkdir(parents=True)
    file = place.workspace / "report.csv"
    file.write_text("first")
    (taken,) = outgoing_files.enclosed(file, "", place.outgoing, place.idem_key).attachments
    file.write_text("and second")
    assert outgoing_files.enclosed(file, "", place.outgoing, place.idem_key).attachments == (taken,)
    assert (Path(taken.path).read_text(), Path(taken.path).stat().st_mode & 0o777) == ("first", 0o600)


@pytest.mark.parametrize(
    ("shown", "allowed"),
    [
        ("process: git status", True),
        ("process: git status --short -- 'a b'", True),
        ("process: git log", False),
        ("process: git  status", False),
        ("other: git status", False),
        ("process: rm x; git status", False),
        *((f"process: git status{mark}rm x", False) for mark in (";", "&", "&&", "|", "<", ">", "$(", "`", "\n", "\r")),
    ],
)
def test_a_rule_never_lets_a_second_command_through(shown: str, allowed: bool):
    assert is_allowed(shown, ["schedule: *", "process: git status*"]) is allowed


def test_a_rule_is_no_pattern_of_another_kind():
    assert not is_allowed("process: lsx", ["process: ls?", "process: l.x", "process: [l]sx"])
    assert is_allowed("process: ls -l", ["process: ls*"])
    assert not is_allowed("process: ls > x", ["process: ls > x"])
