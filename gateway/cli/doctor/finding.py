"""What the doctor finds: one line what it is, one line what to do."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from gateway.config.reading import Loaded
from sessions import workers
from sessions.db import Database

RUNBOOK = "docs/runbook.md"
_PACKAGED = Path(__file__).parents[2] / "runbook.md"
_CHECKED_OUT = Path(__file__).parents[3] / RUNBOOK


class Severity(IntEnum):
    PROBLEM = 0
    WARNING = 1
    NOTE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`code` is stable: programs and the runbook know it. `fix` mends it and harms nothing; None: a person has to."""

    code: str
    severity: Severity
    what: str
    remedy: str
    fix: Callable[[], None] | None = field(default=None, compare=False)

    @property
    def anchor(self) -> str:
        return f"{RUNBOOK}#{self.code.replace('.', '-').replace('_', '-')}"

    def explanation(self) -> str:
        """Returns the runbook's paragraph about it; empty where there is none."""
        runbook = (_PACKAGED if _PACKAGED.exists() else _CHECKED_OUT).read_text("utf-8")
        # A paragraph about several platforms has the anchor of one.
        wanted = {
            self.anchor.partition("#")[2],
            re.sub("^(discord|slack|whatsapp)-", "telegram-", self.anchor.partition("#")[2]),
        }
        for paragraph in runbook.split("\n\n"):
            if wanted & set(re.findall(r'<a id="([^"]+)">', paragraph)):
                return re.sub(r"</?a[^>]*>|\*\*", "", " ".join(paragraph.split()))
        return ""

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity.name.lower(),
            "what": self.what,
            "remedy": self.remedy,
            "fixable": self.fix is not None,
            "runbook": self.anchor,
        }


def problem(code: str, what: str, remedy: str, fix: Callable[[], None] | None = None) -> Diagnosis:
    return Diagnosis(code=code, severity=Severity.PROBLEM, what=what, remedy=remedy, fix=fix)


def warning(code: str, what: str, remedy: str, fix: Callable[[], None] | None = None) -> Diagnosis:
    return Diagnosis(code=code, severity=Severity.WARNING, what=what, remedy=remedy, fix=fix)


def note(code: str, what: str, remedy: str) -> Diagnosis:
    return Diagnosis(code=code, severity=Severity.NOTE, what=what, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTarget:
    """What every check may look at. `loaded` None: the configuration is not usable. `database` None: there is none, or it cannot be opened."""

    home: Path
    environ: Mapping[str, str]
    loaded: Loaded | None
    database: Database | None
    now: int

    @property
    def is_running(self) -> bool:
        return self.database is not None and self.database.read_now(workers.any_ready, self.now)
