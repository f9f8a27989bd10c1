"""What of this program and its extras is installed, and the command that installs what is missing where this Python lives."""

import contextlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "hermes-gateway"
_ROOT = Path(__file__).parents[1]
_REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[([^\]]*)\])?")
_OF_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


def install_command(extra: str) -> str:
    """Returns the command that adds this extra to the environment in which this program runs."""
    prefix, origin = Path(sys.prefix), _origin()
    is_tool_of_uv = (prefix / "uv-receipt.toml").is_file()
    # uv makes the environment of a tool from nothing, so what is there already is named, too.
    extras = ",".join(sorted({*installed_extras(), extra})) if is_tool_of_uv else extra
    url, edits = str(origin.get("url") or ""), ""
    wanted = f"{NAME}[{extras}]" + (f" @ {url}" if url else "")
    if origin.get("dir_info", {}).get("editable"):
        wanted, edits = f"{unquote(urlsplit(url).path)}[{extras}]", "-e "
    wanted = f"{edits}{shlex.quote(wanted)}"
    if is_tool_of_uv:
        return f"uv tool install {wanted}"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx inject {NAME} {wanted}"
    python = shlex.quote(sys.executable)
    if _is_installed("pip"):
        return f"{python} -m pip install {wanted}"
    return f"uv pip install --python {python} {wanted}"  # an environment that uv has made


def installed_extras() -> list[str]:
    """Returns the extras of which every package is there."""
    needed: dict[str, list[str]] = {}
    for requirement in distribution(NAME).requires or ():
        found = _OF_EXTRA.search(requirement)
        if found is not None and found[1] != "all":
            needed.setdefault(found[1], []).append(_parsed(requirement)[0])
    return [extra for extra, names in needed.items() if all(map(_is_installed, names))]


def commit() -> str:
    """Returns the commit that this program was built or installed from; empty when nothing tells."""
    origin = _origin()
    if named := origin.get("vcs_info", {}).get("commit_id"):
        return str(named)[:7]
    built = _ROOT / "gateway" / "COMMIT"
    if built.is_file():
        return built.read_text(encoding="utf-8").strip()
    if not (_ROOT / ".git").exists():
        return ""
    asked = ["git", "-C", str(_ROOT), "rev-parse", "--short", "HEAD"]
    with contextlib.suppress(OSError):
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def licences() -> Iterator[tuple[str, str, str]]:
    """Yields name, version and licence of every package that is installed because of this one."""
    seen, waiting = set[str](), [(NAME, set(installed_extras()))]
    while waiting:
        name, extras = waiting.pop()
        seen.add(name)
        for requirement in distribution(name).requires or ():
            needed, named = _parsed(requirement)
            of_extra = _OF_EXTRA.search(requirement)
            if (of_extra is None or of_extra[1] in extras) and needed not in seen and _is_installed(needed):
                waiting.append((needed, named))
    for name in sorted(seen):
        found = distribution(name)
        yield name, found.version, _licence(found)


def _licence(found: Distribution) -> str:
    about = found.metadata

    def first(field: str) -> str:
        return (about.get_all(field) or [""])[0].partition("\n")[0]

    named = [each.rpartition(" :: ")[2] for each in about.get_all("Classifier") or () if each.startswith("License ::")]
    return first("License-Expression") or ", ".join(named) or first("License") or "not told"


def _parsed(requirement: str) -> tuple[str, set[str]]:
    """Returns the name of a requirement, and the extras that it asks for."""
    found = _REQUIREMENT.match(requirement)
    if found is None:
        return "", set()
    return found[1].lower().replace("_", "-"), {each.strip() for each in (found[2] or "").split(",") if each.strip()}


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _origin() -> dict[str, Any]:
    """Returns what the installer has noted about where this program came from."""
    try:
        return json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
