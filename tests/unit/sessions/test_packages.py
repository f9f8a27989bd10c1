"""The command that installs an extra, as the environment around this Python wants it."""

import sys
from pathlib import Path

import pytest

from sessions import packages
from sessions.packages import install_command


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment from the registry with slack in it."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(packages, "_origin", dict)
    monkeypatch.setattr(packages, "installed_extras", lambda: ["slack"])
    return tmp_path


def test_in_an_environment_it_is_that_of_its_python(prefix: Path) -> None:
    assert install_command("mcp") == f"{sys.executable} -m pip install 'hermes-gateway[mcp]'"


def test_a_tool_of_uv_is_installed_anew_with_what_it_has(prefix: Path) -> None:
    (prefix / "uv-receipt.toml").touch()
    assert install_command("mcp") == "uv tool install 'hermes-gateway[mcp,slack]'"


def test_pipx_injects_it(prefix: Path) -> None:
    (prefix / "pipx_metadata.json").touch()
    assert install_command("mcp") == "pipx inject hermes-gateway 'hermes-gateway[mcp]'"


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        ({"url": "file:///srv/h.whl", "archive_info": {}}, "'hermes-gateway[mcp] @ file:///srv/h.whl'"),
        ({"url": "file:///srv/my%20hermes", "dir_info": {"editable": True}}, "-e '/srv/my hermes[mcp]'"),
    ],
)
def test_it_comes_from_where_the_program_came_from(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, origin: object, wanted: str
) -> None:
    monkeypatch.setattr(packages, "_origin", lambda: origin)
    assert install_command("mcp") == f"{sys.executable} -m pip install {wanted}"
