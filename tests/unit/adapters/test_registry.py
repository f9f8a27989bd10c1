"""Which platforms there are, and what is known of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from adapters.base import ReceivesWebhooks
from adapters.registry import OUR_OWN, Unavailable, build, is_built, manifest, section_model, settings, title_of
from sessions.keys import Platform

BUILT = [name for name in OUR_OWN if is_built(name)]


@pytest.mark.parametrize("name", OUR_OWN)
def test_a_manifest_names_its_platform_and_what_to_install(name: str) -> None:
    found = manifest(name)
    assert (found.platform, found.extra) == (Platform(name), name)


@pytest.mark.parametrize("name", OUR_OWN)
def test_a_section_has_the_common_keys_and_those_of_the_manifest(name: str) -> None:
    fields = set(section_model(name).model_fields)
    assert {"enabled", "allowed_users", "api_base"} <= fields
    assert {need.key for need in manifest(name).needed} <= fields
    assert "webhook_url" not in fields


def test_telegram_is_built() -> None:
    assert "telegram" in BUILT


def test_an_adapter_is_built_from_its_section() -> None:
    adapter = build("telegram", section_model("telegram")(token="1:x", api_base="http://127.0.0.1:1"))
    assert adapter.platform == Platform.TELEGRAM
    assert isinstance(adapter, ReceivesWebhooks)


def test_only_what_the_adapter_is_made_of_counts_as_its_settings() -> None:
    section = section_model("telegram")(token="1:x", allowed_users=["7"])
    assert settings("telegram", section, webhook_url="https://h/w") == {
        "token": "1:x",
        "mode": "polling",
        "webhook_url": "https://h/w",
    }


def test_an_unknown_platform() -> None:
    with pytest.raises(Unavailable, match=r"no platform 'icq'\. There are: telegram, discord, slack, whatsapp\."):
        manifest("icq")
    assert [title_of("icq"), title_of("whatsapp")] == ["Icq", "WhatsApp"]


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("adapters.telegram.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "telegram", None)
    with pytest.raises(Unavailable, match=r"Run: .*\[telegram\]'"):
        build("telegram", section_model("telegram")(token="1:x"))


def test_neither_manifests_nor_sections_import_a_library() -> None:
    code = (
        "import sys; from adapters.registry import OUR_OWN, manifest, section_model;"
        "libraries = {manifest(name).sdk for name in OUR_OWN if section_model(name)} - {'aiohttp'};"
        "sys.exit(', '.join(libraries & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


ADAPTER = """
from dataclasses import dataclass, field
from adapters.base import Adapter, Pace, TryLater
from adapters.registry import Manifest
from sessions.keys import Address, ChatKind, Sender
from sessions.messages import Inbound, Outbound, Receipt


@dataclass(frozen=True, kw_only=True)
class MatrixConfig:
    access_token: str = field(default="", repr=False)
    room_limit: int = 10


class Matrix(Adapter):
    platform = "matrix"
    pace = Pace(per_second=10, dm=0.1, group=0.1, edit=1)

    def __init__(self, config):
        self.config = config


MANIFEST = Manifest(
    platform="matrix", title="Matrix", adapter="matrix_adapter:Matrix", config="matrix_adapter:MatrixConfig",
    config_keys=("access_token", "room_limit"), sdk="nio", extra="matrix",
)
"""


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A package of somebody else, as an installer leaves it: one module and its entry point."""
    (tmp_path / "matrix_adapter.py").write_text(ADAPTER)
    info = tmp_path / "matrix_adapter-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: matrix-adapter\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[hermes_gateway.adapters]\nmatrix = matrix_adapter:MANIFEST\n")
    return tmp_path


def python(foreign: Path, code: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(foreign), "PATH": ""}
    )
    return answer.stdout + answer.stderr


READ = "from gateway.config.reading import read; from gateway.config.sources import Sources; import sys;"


def test_a_platform_of_another_package_has_its_section_and_its_adapter(foreign: Path) -> None:
    code = f"""{READ}
from adapters.registry import build
config = read(Sources(yaml='platforms: {{matrix: {{enabled: true, access_token: s3cret-token, room_limit: 3}}}}')).config
section = config.platforms.by_name()['matrix']
adapter = build('matrix', section)
print(section.access_token, adapter.config.access_token, adapter.config.room_limit, adapter.platform)
"""
    assert python(foreign, code) == "********** s3cret-token 3 matrix\n"


def test_its_section_is_checked_with_messages_of_the_same_kind(foreign: Path) -> None:
    code = f"""{READ}
from gateway.config.problems import BadConfig
try:
    read(Sources(yaml='platforms: {{matrix: {{room_limit: many, acces_token: x}}}}'))
except BadConfig as bad:
    print([(problem.path, problem.said, problem.remedy) for problem in bad.problems])
"""
    assert python(foreign, code) == (
        "[('platforms.matrix.room_limit', \"got 'many'\", 'allowed: a whole number'), "
        "('platforms.matrix.acces_token', 'unknown key', 'did you mean access_token?')]\n"
    )


def test_it_is_not_imported_unless_it_is_named(foreign: Path) -> None:
    code = f"{READ} read(Sources(yaml='platforms: {{}}')); print('matrix_adapter' in sys.modules)"
    assert python(foreign, code) == "False\n"
