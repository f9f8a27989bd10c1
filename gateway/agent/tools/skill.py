"""Skills: ways of doing something, each a folder with a SKILL.md.

What the agent has saved belongs to the namespace in which it was saved; what an administrator puts there is for all.
"""

import asyncio
import hashlib
import os
import re
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gateway.agent.tools.registry import Arguments, Tool, ToolContext, ToolError

MAX_SKILL = 50_000
MAX_SKILLS = 500
_FILE, _OWNER = "SKILL.md", ".namespace"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class SkillArguments(Arguments):
    action: Literal["save", "view", "list", "delete"]
    name: Annotated[str | None, Field(description="words joined by -")] = None
    content: Annotated[str | None, Field(max_length=MAX_SKILL, description="first line: what it is for")] = None


async def skill(place: ToolContext, arguments: SkillArguments) -> str:
    """Skills: how something is done well."""
    return await asyncio.to_thread(_act, place.skills, place.session.ns, arguments)


def _act(folder: Path, ns: str, arguments: SkillArguments) -> str:
    if arguments.action == "list":
        return "\n".join(listing(folder, ns)) or "There are no skills yet."
    name = arguments.name or ""
    if not _NAME.fullmatch(name):
        raise ToolError("a skill's name is made of lower-case letters, digits and -")
    own, shared = _own(folder, ns, name), folder / name
    file = own / _FILE if (own / _FILE).is_file() else shared / _FILE
    readable = file.is_file() and _whose(file.parent) in {None, ns}
    match arguments.action:
        case "save":
            if not (arguments.content or "").strip():
                raise ToolError("save needs content")
            if not own.exists() and len(listing(folder, ns)) >= MAX_SKILLS:
                raise ToolError(f"there are {MAX_SKILLS} skills already; delete one first")
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            # The owner first: a skill without one is for all namespaces, and a crash may come between the two.
            _write(own / _OWNER, ns)
            _write(own / _FILE, (arguments.content or "").strip() + "\n")
            return f"Saved the skill {name}."
        case "view" if readable:
            return file.read_text(encoding="utf-8", errors="replace")
        case "delete" if readable and _whose(file.parent) == ns:
            shutil.rmtree(file.parent)
            return f"Deleted the skill {name}."
        case "delete" if readable:
            raise ToolError(f"the skill {name} was put here by the administrator; you cannot delete it")
        case _:
            raise ToolError(f"there is no skill {name}; the action list shows what there is")


def _own(folder: Path, ns: str, name: str) -> Path:
    """Returns the folder of this namespace's skill with that name. When another namespace has the name, that is a folder beside it."""
    plain = folder / name
    if not plain.exists() or _whose(plain) == ns:
        return plain
    return folder / f"{name}@{hashlib.sha256(ns.encode()).hexdigest()[:12]}"


def _whose(skill: Path) -> str | None:
    """Returns the namespace that saved the skill; None: an administrator put it there, for all."""
    try:
        return (skill / _OWNER).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}.part")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    temporary.replace(file)


def listing(folder: Path, ns: str | None = None) -> list[str]:
    """Returns `name: first line` for each skill of this namespace and for those for all; without a namespace, for all there are."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob(f"*/{_FILE}")):
        if not file.is_file():  # to open a pipe waits for its writer, for ever
            continue
        owner, name = _whose(file.parent), file.parent.name.partition("@")[0]
        # Its own skill hides one for all of the same name.
        if owner == ns or ((owner is None or ns is None) and name not in found):
            seen = file.stat()
            found[name] = f"{name}: {_about(file, seen.st_mtime_ns, seen.st_size)}"
    return [found[name] for name in sorted(found)]


@lru_cache(maxsize=MAX_SKILLS)  # by time and size too, so that only what has changed is read again
def _about(file: Path, _changed: int, _size: int) -> str:
    with file.open(encoding="utf-8", errors="replace") as lines:
        said = (line.strip().lstrip("#").strip() for line in lines)
        return next((line for line in said if line and line != "---"), "")[:120]


TOOL = Tool(
    name="skill",
    arguments=SkillArguments,
    function=skill,
    idempotent=True,
    folder="skills",
    harmless=frozenset({"save", "view", "list"}),
)
