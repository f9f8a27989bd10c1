"""Reads LoCoMo (https://github.com/snap-research/locomo, `locomo10.json`), which is not shipped: ten long conversations with questions."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ADVERSARIAL = 5
_DIALOG = re.compile(r"D(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Utterance:
    id: str
    speaker: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class LocomoConversation:
    """`observations`: LoCoMo's own annotations, with the messages that they are from."""

    name: str
    sessions: Sequence[Sequence[Utterance]]
    questions: Sequence[Question]
    observations: Sequence[tuple[str, Sequence[str]]]


def conversations(path: Path) -> Iterator[LocomoConversation]:
    """Questions without evidence, and those that have no answer, are left out."""
    for item in json.loads(path.read_text()):
        talk = item["conversation"]
        names = sorted((key for key in talk if re.fullmatch(r"session_\d+", key)), key=lambda key: int(key[8:]))
        sessions = [_session(talk, name) for name in names if talk[name]]
        yield LocomoConversation(
            name=str(item["sample_id"]),
            sessions=sessions,
            questions=[
                Question(str(asked["question"]), frozenset(_ids(" ".join(asked["evidence"]))))
                for asked in item["qa"]
                if asked.get("evidence") and asked["category"] != ADVERSARIAL
            ],
            observations=[*_observations(item["observation"])],
        )


def _session(talk: dict[str, Any], name: str) -> list[Utterance]:
    began = datetime.strptime(talk[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    at = int(began.timestamp() * 1000)
    return [
        Utterance(turn["dia_id"], turn["speaker"], _text(turn), at + i * 60_000) for i, turn in enumerate(talk[name])
    ]


def _text(turn: dict[str, Any]) -> str:
    shows = f" [shows a picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
    return f"{turn['text']}{shows}"


def _observations(found: dict[str, Any]) -> Iterator[tuple[str, Sequence[str]]]:
    for of_session in found.values():
        for notes in of_session.values():
            for text, source in notes:
                yield str(text), _ids(str(source))


def _ids(text: str) -> list[str]:
    return [f"D{int(session)}:{int(turn)}" for session, turn in _DIALOG.findall(text)]
