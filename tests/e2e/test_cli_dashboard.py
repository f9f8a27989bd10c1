"""`hermes dashboard` and `hermes audit` from a shell."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import hermes
from sessions import audit, workers
from sessions.clock import now_ms
from sessions.db import open_database
from sessions.lease_owners import this_owner
from sessions.workers import WorkerRow, WorkerState

TEAM = "people: [{name: ann, scopes: [chat, admin]}, {name: bo}]\n"


@pytest.fixture
def served(home: Path) -> Path:
    """A home on which a gateway seems to run: this process."""
    database, now = open_database(home), now_ms()
    row = WorkerRow(
        name="w", owner=this_owner(), host="h", pid=os.getpid(), version="0", role="all", state=WorkerState.READY,
        started_at=now, last_seen=now,
    )  # fmt: skip
    database.write_now(workers.report, row)
    database.close()
    (home / "config.yaml").write_text(TEAM)
    return home


def call(home: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    done = CliRunner().invoke(hermes, ["--home", str(home), *arguments], env=environ)
    return done.exit_code, done.output


def test_a_link_is_printed_and_all_are_revoked(served: Path) -> None:
    code, printed = call(served, "dashboard", SSH_CONNECTION="10.0.0.9 50000 10.0.0.7 22", USER="ann")
    assert code == 0
    assert "http://127.0.0.1:8642/ui/login#" in printed
    assert "ssh -L 8642:127.0.0.1:8642 ann@10.0.0.7" in printed
    found = json.loads(call(served, "dashboard", "--for", "ann", "--json", SSH_CONNECTION="")[1])
    assert found["expires_in"] == 300
    again = f"`hermes --home {served} dashboard`"
    assert call(served, "dashboard", "--revoke") == (0, f"0 sign-ins ended. {again} prints a new link.\n")


@pytest.mark.parametrize(("name", "said"), [("bo", "bo has no scope admin"), ("eve", "names no eve. It names ann, bo")])
def test_only_an_admin_gets_one(served: Path, name: str, said: str) -> None:
    code, printed = call(served, "dashboard", "--for", name)
    assert (code, said in printed) == (2, True)


def test_without_a_gateway_there_is_nothing_to_open(home: Path) -> None:
    code, printed = call(home, "dashboard")
    assert (code, "No gateway runs on" in printed) == (1, True)


def test_the_audit_is_listed(served: Path) -> None:
    database = open_database(served)
    for number, action in enumerate(("approval.denied", "approval.approved", "session.deleted")):
        database.write_now(
            audit.record, now_ms() - number * 3_600_000, "key:laptop", action, f"ask:{number}{'x' * 120}"
        )
    database.close()
    assert call(served, "audit", "--who", "nobody") == (0, "Nothing is recorded.\n")
    listed = call(served, "audit")[1].splitlines()
    assert len(listed) == 3
    assert listed[0].endswith(f"  key:laptop  approval.denied    ask:0{'x' * 120}")
    approvals = json.loads(call(served, "audit", "--action", "approval", "--since", "30m", "--json")[1])
    assert [row["action"] for row in approvals] == ["approval.denied"]
    assert approvals[0]["at"].endswith("+00:00")
