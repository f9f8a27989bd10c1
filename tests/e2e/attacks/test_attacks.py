"""A stranger, or somebody with a key, does what he can to stop the daemon; an ordinary caller hardly notices.

The figures are printed: `make chaos ARGS="tests/e2e/attacks -s"`.
"""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.attacks import attacker
from tests.e2e.attacks.victim import MALLORY, Seen, under, victim
from tests.fakes.model_replies import Reply
from tests.fakes.model_server import ModelServer

pytestmark = pytest.mark.chaos


def judge(name: str, seen: Seen) -> None:
    print(f"\n{name}: {seen}")  # noqa: T201  # figures to look at
    assert seen.during < max(5 * seen.usual, 0.01), name
    assert seen.after < seen.before + 30, name


@pytest.mark.parametrize("key", ["", MALLORY], ids=["stranger", "key"])
async def test_packed_bodies(home: Path, key: str) -> None:
    async with victim(home) as found:
        judge("12 packed bodies of 1 GB", await under(found, attacker.packed_bodies, key))


async def test_more_connections_than_files(home: Path) -> None:
    async with victim(home, files=256) as found:
        seen = await under(found, attacker.crowd, 1_500)
        lines = found.log.read_text().count("\n")
        judge(f"1,500 connections at 256 files, {lines} log lines", seen)
        assert lines < 100


@pytest.mark.parametrize(
    "content", ["[" + "{}," * 999_999 + "{}]", '"' + "\\u0041" * 400_000 + '"'], ids=["parts", "text"]
)
async def test_a_million_parts(home: Path, content: str) -> None:
    async with victim(home) as found:
        judge(f"20 bodies of {len(content):,} bytes", await under(found, attacker.contents, MALLORY, content))


async def test_bodies_that_never_end(home: Path) -> None:
    async with victim(home) as found:
        judge("60 bodies that end ten bytes short", await under(found, attacker.unfinished, MALLORY))


async def test_large_pictures(home: Path) -> None:
    async with victim(home) as found:
        judge("20 pictures of 18 MB", await under(found, attacker.pictures, MALLORY))


async def test_a_crowd_of_one_key(home: Path) -> None:
    async with ModelServer(_slow_for_mallory) as model, victim(home, model=model.url) as found:
        judge("70 slow calls of another key", await under(found, attacker.slow_calls, MALLORY))


def _slow_for_mallory(sent: dict[str, object]) -> Reply:
    slow = "slow" in str(sent["messages"])
    return Reply(text="well", before=(lambda: asyncio.sleep(3)) if slow else None)
