"""The units under a real systemd, booted in namespaces of its own: readiness, restart, watchdog, credentials, backup, commands of the agent."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SYSTEMD = Path("/lib/systemd/systemd")


@pytest.mark.chaos
@pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("unshare") is None, reason="needs root and systemd"
)
def test_the_life_of_the_service(tmp_path: Path):
    subprocess.run(["sh", HERE / "boot.sh", ROOT, tmp_path], capture_output=True, timeout=240, check=False)
    for left in (*Path("/sys/fs/cgroup").glob("hermes-test-*"), *Path("/sys/fs/cgroup/unified").glob("hermes-test-*")):
        for group in sorted([left, *(path for path in left.rglob("*") if path.is_dir())], reverse=True):
            group.rmdir()
    said = dict(line.split(": ", 1) for line in (tmp_path / "said").read_text().splitlines() if ": " in line)
    assert "closed to other users" in said["closed"]
    assert said["installed"] == "hermes-gateway runs; its home is /var/lib/hermes-gateway."
    assert said["active"] == "active after 0 restarts"
    assert said["user"].endswith(" 700")
    assert not said["user"].startswith("root")
    assert said["capabilities"].endswith("0000000000000000")
    assert said["credential"] == "opensesame"
    assert "has been running" in said["status"]
    assert " cli " in said["listed"], "the service goes on with root's home, and root's commands find it"
    assert said["killed"] == "active after 1 restarts"
    assert said["stuck"] == "active after 2 restarts"
    assert said["backup"].startswith("success /")
    assert said["command home"] == "/var/lib/hermes-gateway/tool-home writable"
    assert said["command tmp"] == said["command workspace"] == "writable"
    assert said["command system"] == "closed"
    assert said["command python"] == "runs"
    assert said.get("command npx", "runs") == "runs", "it is not there on every machine"
    assert said["stopped"] == "inactive success"
    assert said["removed"] == "The home with all sessions stays where it is."
