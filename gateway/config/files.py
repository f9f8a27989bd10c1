"""Writes files of the home that hold settings: whole or not at all, and readable only for their owner."""

import os
from pathlib import Path as File

from sessions.files import written_whole

_PACKAGED = File(__file__).parents[1] / "config.example.yaml"
_CHECKED_OUT = File(__file__).parents[2] / "config.example.yaml"


def write_private(path: File, text: str) -> None:
    """Replace the file at once. A link keeps pointing where it does. Raises OSError.

    A file that is there keeps its owner, and its mode unless everybody could read it. A new one gets mode 0600 and, written by root, the owner of its folder: the
    service of another user has to read what an admin writes.
    """
    target = path.resolve()
    try:
        with written_whole(target) as file:
            file.write(text)
            _take_on_rights(file.fileno(), target)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # nobody knows the temporary file
        raise


def _take_on_rights(handle: int, target: File) -> None:
    existing = target.stat() if target.exists() else None
    if existing is not None and not existing.st_mode & 0o007:
        os.fchmod(handle, existing.st_mode & 0o777)
    if os.geteuid() == 0:
        owner = existing or target.parent.stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)


def example() -> str:
    """The documented example, from the installed package or from the checkout."""
    return (_PACKAGED if _PACKAGED.exists() else _CHECKED_OUT).read_text("utf-8")


def schema() -> str:
    """The JSON schema that editors use. Every text may also be a reference such as ${NAME}."""
    import json

    from gateway.config.model import Config

    return json.dumps(Config.model_json_schema(), indent=2, ensure_ascii=False) + "\n"
