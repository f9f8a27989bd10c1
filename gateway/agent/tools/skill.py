"""Skills: ways of doing something that the agent has saved, each a folder with a SKILL.md."""

import asyncio
import os
import re
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gateway.agent.tools.registry import Arguments, Place, Tool, ToolError

MAX_SKILL = 50_000
MAX_SKILLS = 500
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Skill(Arguments):
    action: Literal["save", "view", "list", "delete"]
    name: Annotated[str | None, Field(description="lower-case words joined by -")] = None
    content: Annotated[
        str | None, Field(max_length=MAX_SKILL, description="Markdown; the first line says what it is for")
    ] = None


async def skill(place: Place, arguments: Skill) -> str:
    """Save how something is done well, so that you can do it the same way next time; view a skill before you use it."""
    return await asyncio.to_thread(_act, place.skills, arguments)


def _act(folder: Path, arguments: Skill) -> str:
    if arguments.action == "list":
        return "\n".join(listing(folder)) or "There are no skills yet."
    name = arguments.name or ""
    if not _NAME.fullmatch(name):
        raise ToolError("a skill's name is made of lower-case letters, digits and -, for example weekly-report")
    file = folder / name / "SKILL.md"
    match arguments.action:
        case "save":
            return _save(file, arguments.content)
        case "view" if file.is_file():
            return file.read_text(encoding="utf-8", errors="replace")
        case "delete" if file.is_file():
            shutil.rmtree(file.parent)
            return f"Deleted the skill {name}."
        case _:
            raise ToolError(f"there is no skill {name}; the action list shows what there is")


def _save(file: Path, content: str | None) -> str:
    if not (content or "").strip():
        raise ToolError("save needs content")
    if not file.exists() and len(listing(file.parent.parent)) >= MAX_SKILLS:
        raise ToolError(f"there are {MAX_SKILLS} skills already; delete one first")
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_name(".SKILL.md.part")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write((content or "").strip() + "\n")
    temporary.replace(file)
    return f"Saved the skill {file.parent.name}."


def listing(folder: Path) -> list[str]:
    """`name: first line` of every skill, for the prompt. Only what has changed is read again."""
    found: list[str] = []
    for file in sorted(folder.glob("*/SKILL.md")):
        seen = file.stat()
        found.append(f"{file.parent.name}: {_about(file, seen.st_mtime_ns, seen.st_size)}")
    return found


@lru_cache(maxsize=MAX_SKILLS)
def _about(file: Path, _changed: int, _size: int) -> str:
    with file.open(encoding="utf-8", errors="replace") as lines:
        said = (line.strip().lstrip("#").strip() for line in lines)
        return next((line for line in said if line and line != "---"), "")[:120]


TOOL = Tool(name="skill", arguments=Skill, function=skill, idempotent=True)
