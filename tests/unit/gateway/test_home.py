"""Where the home is, and how it is made."""

from pathlib import Path

import pytest

from gateway.home import BadHome, prepare_home, resolve_home


def test_option_over_variable_over_default(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert resolve_home("a", {"HERMES_HOME": "/b"}) == tmp_path / "a"
    assert resolve_home(None, {"HERMES_HOME": "~/b"}) == tmp_path / "b"
    assert resolve_home(None, {"HERMES_HOME": ""}) == tmp_path / ".hermes"


def test_it_is_made_for_its_owner_only(tmp_path):
    home = tmp_path / "deep" / "home"

    prepare_home(home)
    prepare_home(home)

    assert home.stat().st_mode & 0o777 == 0o700
    assert list(home.iterdir()) == []


def test_a_home_that_is_there_keeps_its_mode(tmp_path):
    tmp_path.chmod(0o755)

    prepare_home(tmp_path)

    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "file").touch()

    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BadHome, match="is a file, or below one"):
            prepare_home(home)


def test_a_place_that_cannot_be_written():
    with pytest.raises(BadHome, match=r"cannot be written: .*--home DIR"):
        prepare_home(Path("/proc/hermes"))
