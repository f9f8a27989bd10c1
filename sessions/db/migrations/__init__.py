"""Bring a database to the schema of this version. The only importer of alembic, and imported only when there is something to do."""

import os
from collections.abc import Sequence
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

_HERE = Path(__file__).parent


def upgrade(conn: Connection, more: Sequence[Path] = (), to: str = "head") -> None:
    """Runs the missing migrations up to the revision `to`, in the caller's transaction and under the caller's lock. `more`: folders with later
    migrations.
    """
    config = Config()
    config.set_main_option("script_location", str(_HERE).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.set_main_option(
        "version_locations", os.pathsep.join(map(str, [_HERE / "versions", *more])).replace("%", "%%")
    )
    config.attributes["connection"] = conn
    command.upgrade(config, to)
