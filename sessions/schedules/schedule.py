"""A schedule as it is kept and shown."""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self


class ScheduleKind(StrEnum):
    CRON = "cron"
    INTERVAL = "interval"
    ONCE = "once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """`expr`: five cron fields. `minutes`: of an interval. `run_at`: of a one-shot, in milliseconds."""

    kind: ScheduleKind
    expr: str = ""
    minutes: int = 0
    run_at: int = 0

    def to_json(self) -> str:
        names = {ScheduleKind.CRON: "expr", ScheduleKind.INTERVAL: "minutes", ScheduleKind.ONCE: "run_at"}
        name = names[self.kind]
        return json.dumps({"kind": self.kind, name: getattr(self, name)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        stored: dict[str, Any] = json.loads(text)
        stored["kind"] = ScheduleKind(stored["kind"])
        return cls(**stored)
