"""The daemon as a service: unit files, and what systemctl is asked for. A script in its place writes down its arguments."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway import home
from gateway.cli import main, service
from gateway.cli.service import Units

HERMES = str(Path(sys.executable).with_name("hermes"))


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """Where the arguments of systemctl stand."""
    told, script = tmp_path / "asked", tmp_path / "bin" / "systemctl"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "$@" >> {told}\n')
    script.chmod(0o755)
    return told


def hermes(asked: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    folder = asked.parent
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environ = {**os.environ, "HOME": str(folder), "PATH": path, "HERMES_HOME": str(folder / "home of mine")}
    return subprocess.run([HERMES, "gateway", *arguments], capture_output=True, text=True, env=environ, timeout=60)


def test_a_service_comes_runs_and_goes(asked: Path):
    units = asked.parent / ".config/systemd/user"
    assert "hermes gateway install" in hermes(asked, "start", "--user").stderr
    made = hermes(asked, "install", "--user")
    assert made.returncode == 0, made.stderr
    assert {path.name for path in units.iterdir()} == {
        "hermes-gateway.service",
        "hermes-gateway-backup.service",
        "hermes-gateway-backup.timer",
    }
    text = (units / "hermes-gateway.service").read_text()
    assert f"ExecStart={HERMES} gateway run" in text
    assert f'Environment="HERMES_HOME={asked.parent / "home of mine"}"' in text
    assert hermes(asked, "restart", "--user").returncode == 0
    assert hermes(asked, "uninstall", "--user").returncode == 0
    assert not list(units.iterdir())
    assert asked.read_text().splitlines() == [
        "--user show --property=Version",
        "--user daemon-reload",
        "--user enable --now hermes-gateway.service hermes-gateway-backup.timer",
        "--user restart hermes-gateway.service",
        "--user disable --now hermes-gateway.service hermes-gateway-backup.timer",
        "--user daemon-reload",
    ]


def test_what_somebody_else_wrote_is_left_alone(asked: Path):
    foreign = asked.parent / ".config/systemd/user/hermes-gateway.service"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("[Service]\nExecStart=/usr/bin/other\n")
    for verb in ("install", "uninstall"):
        refused = hermes(asked, verb, "--user")
        assert refused.returncode == 2
        assert "--name" in refused.stderr
    assert "other" in foreign.read_text()
    assert hermes(asked, "install", "--user", "--name", "work").returncode == 0
    assert (foreign.parent / "hermes-gateway-work.service").exists()
    assert not asked.read_text().count("hermes-gateway.service")


def test_nothing_is_written_where_no_systemd_answers(asked: Path):
    (asked.parent / "bin/systemctl").write_text("#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n")
    refused = hermes(asked, "install", "--user")
    assert refused.returncode == 1
    assert "hermes gateway run` runs in the foreground" in refused.stderr
    assert not (asked.parent / ".config").exists()


@pytest.fixture
def as_root(asked: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `hermes` as root of a machine whose units and service homes lie in a folder of the test."""
    root = asked.parent
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(root / "root"))
    monkeypatch.delenv("HERMES_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Units, "folder", property(lambda _: root / "units"))
    monkeypatch.setattr(Units, "home_of_service", property(lambda each: root / "lib" / each.name))
    monkeypatch.setattr(Units, "out_of_reach", lambda _: "")
    monkeypatch.setattr(home, "UNIT_FOLDERS", (root / "units",))
    monkeypatch.setattr(service, "SHIPPED_HOME", str(root / "lib/hermes-gateway"))
    return lambda *arguments, said=None: CliRunner().invoke(main.hermes, arguments, input=said)


def test_the_service_of_root_goes_on_with_the_home_of_root(as_root: Callable[..., Result], asked: Path):
    root = asked.parent
    assert as_root("chat", "-q", "remember that I prefer tea").exit_code == 0
    unsaid = as_root("gateway", "install", "--system")
    assert (unsaid.exit_code, "--move-home or --new-home" in unsaid.output) == (2, True)
    assert not (root / "units").exists()

    moved = as_root("gateway", "install", "--system", "--move-home")

    assert moved.exit_code == 0, moved.output
    assert "A copy stays in" in moved.output
    assert (root / "lib/hermes-gateway/state.db").exists()
    assert (root / "root/.hermes.before-service/state.db").exists()
    for unit in (root / "units").iterdir():
        unit.write_text(unit.read_text().replace("/var/lib/", f"{root / 'lib'}/"))
    assert " practice " in as_root("sessions", "list").output, "root's commands find the home"
    (root / "root/.hermes").mkdir()
    (root / "root/.hermes/config.yaml").touch()
    listed = as_root("sessions", "list")
    assert f"add --home {root / 'lib/hermes-gateway'}" in listed.output
    assert " practice " not in listed.output


def test_a_home_in_use_by_the_service_stays(as_root: Callable[..., Result], asked: Path):
    for place in ("root/.hermes", "lib/hermes-gateway"):
        (asked.parent / place).mkdir(parents=True)
        (asked.parent / place / "config.yaml").touch()
    assert as_root("gateway", "install", "--system", "--move-home").exit_code == 1
    installed = as_root("gateway", "install", "--system")
    assert installed.exit_code == 0, installed.output
    assert "stays as it is" in installed.output


def test_a_bad_configuration_stops_nothing(asked: Path):
    assert hermes(asked, "install", "--user").returncode == 0
    before = asked.read_text()
    (asked.parent / "home of mine").mkdir(exist_ok=True)
    (asked.parent / "home of mine" / "config.yaml").write_text("session_reset: {mode: dayly}\n")
    refused = hermes(asked, "restart", "--user")
    assert refused.returncode == 2
    assert "did you mean daily?" in refused.stderr
    assert asked.read_text() == before


def units_of(tmp_path: Path, needs: Path) -> Units:
    return Units(user=False, instance="", program="/opt/x", runs_from=(needs,), home=tmp_path)


def test_what_a_service_could_not_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert units_of(tmp_path, Path("/")).out_of_reach() == ""
    assert "temporary" in units_of(tmp_path, Path("/tmp/venv")).out_of_reach()
    monkeypatch.setattr(service, "_OWN_TO_A_SERVICE", ())
    (closed := tmp_path / "closed").mkdir(mode=0o700)
    (closed / "python").touch(mode=0o755)
    assert "closed to other users" in units_of(tmp_path, closed / "python").out_of_reach()


def test_a_python_in_a_home_may_be_read_by_the_service(tmp_path: Path):
    service, *_ = units_of(tmp_path, Path("/home/ann/.pyenv/bin/python")).files.values()
    assert "ProtectHome=read-only" in service


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("scope", ["--user", "--system"])
def test_systemd_finds_nothing_wrong_with_the_units(asked: Path, scope: str):
    printed = hermes(asked, "install", "--print", scope, "--name", "work")
    assert printed.returncode == 0, printed.stderr
    files: list[str] = []
    for text in printed.stdout.split("\n# /")[0:]:
        where, _, unit = text.removeprefix("# /").partition("\n")
        path = asked.parent / Path(where).name
        path.write_text(unit)
        files.append(str(path))
    assert len(files) == 3
    checked = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, timeout=60)
    ours = [line for line in checked.stderr.splitlines() if "hermes" in line]
    assert not ours, ours
    if scope == "--system":
        rated = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", files[0]], capture_output=True, text=True, timeout=60
        )
        assert "OK" in rated.stdout.splitlines()[-1], rated.stdout[-300:]
