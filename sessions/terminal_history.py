"""Reads and writes the history of the terminal's prompt, a file in the home."""

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from sessions.files import replace

NAME = "history"


def forget(home: Path, texts: Collection[str]) -> None:
    """Take out the entries that say the same as one of these texts. Raises OSError."""
    path = home / NAME
    try:
        written = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return
    gone = {text.strip() for text in texts}
    kept = "".join(_without(written, lambda said: said.strip() in gone))
    if kept != written:
        replace(path, kept)


def _without(written: str, gone: Callable[[str], bool]) -> Iterator[str]:
    """An entry is a comment with the time, then its lines, each behind a plus."""
    entry: list[str] = []
    for line in [*re.findall(r"[^\n]*\n|[^\n]+", written), ""]:
        if entry and entry[-1].startswith("+") and not line.startswith("+"):
            if not gone("".join(said[1:] for said in entry if said.startswith("+"))):
                yield "".join(entry)
            entry = []
        entry.append(line)
    yield "".join(entry)
