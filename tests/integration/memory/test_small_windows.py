"""What a model with a small window is sent, through the whole worker: no message falls between the recent turns and the notes, and the room is used."""

from pathlib import Path

import pytest

from gateway.agent.memory.fold_worker import FoldWorker
from gateway.agent.tokens import Tokens
from gateway.agent.tools import memory as memory_tool
from gateway.agent.tools import session_search
from gateway.agent.window import Window
from sessions import memory, store
from tests.integration.memory.folding import extractor
from tests.integration.runs.worker_in_process import KEY, WorkerHarness, worker_in_process

TOOLS = (memory_tool.TOOL, session_search.TOOL)
SAID = (
    "ok",
    "We walk along the river on Sunday. " * 3,
    "word " * 60,
    "What is there to eat? " * 20,
    "yes",
    "go on " * 9,
)


async def fold_what_is_due(it: WorkerHarness) -> bool:
    """As the worker of folds decides it. Returns whether something was folded."""
    worker, session = FoldWorker(it.app), await it.database.read(store.active, KEY)
    assert session is not None
    found = await it.database.read(memory.unfolded, [session.id])
    keep = worker.tokens_to_keep(found[0], it.app.clock()) if found else None
    if keep is not None:
        await worker.fold(session.id, keep=keep)
    return keep is not None


@pytest.mark.parametrize(("size", "share"), [(4_096, 0.5), (16_384, 0.3)])
async def test_what_is_in_no_note_yet_is_among_the_recent_turns_and_the_room_is_used(
    home: Path, size: int, share: float
) -> None:
    async with worker_in_process(
        home, tools=TOOLS, settings={"context_window": size}, then="All right, that is good. " * 6, folds=extractor()
    ) as it:
        starts: list[list[str]] = [[]]
        for turn in range(48):
            await it.say(f"{turn} {SAID[turn % len(SAID)] * (size // 4_096)}")
            sent = it.server.bodies[-1]["messages"]
            assert "not yet summarised" not in str(sent)
            starts[-1].append(sent[0]["content"])
            if await fold_what_is_due(it):
                starts.append([])
        assert all(len(set(some)) <= 1 for some in starts), "without a fold the start of the prompt stays as it is"
        assert len(starts) < 24, "a fold takes several turns together"
        used = [Tokens().messages(body["messages"]) + Tokens().tools(body["tools"]) for body in it.server.bodies]
        room = Window(size=size, output=1_000).room
        assert room * share <= max(used) <= room
