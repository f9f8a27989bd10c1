import subprocess
import sys

import pytest

from adapters.base import ReceivesWebhooks
from adapters.registry import REGISTERED, Unavailable, build, manifest
from sessions.keys import Platform


@pytest.mark.parametrize("name", REGISTERED)
def test_a_manifest_names_its_platform_and_what_to_install(name: str) -> None:
    found = manifest(name)
    assert (found.platform, found.extra) == (Platform(name), name)


def test_an_adapter_is_built_from_settings() -> None:
    adapter = build("telegram", {"token": "1:x", "api_base": "http://127.0.0.1:1"})
    assert adapter.platform is Platform.TELEGRAM
    assert isinstance(adapter, ReceivesWebhooks)


def test_an_unknown_platform() -> None:
    with pytest.raises(Unavailable, match=r"no platform 'icq'\. There are: telegram\."):
        manifest("icq")


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("adapters.telegram.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "telegram", None)
    with pytest.raises(Unavailable, match=r"Run: pip install 'hermes-gateway\[telegram\]'"):
        build("telegram", {"token": "1:x"})


def test_the_manifest_does_not_import_the_library() -> None:
    code = (
        "import sys; from adapters.registry import manifest; manifest('telegram'); sys.exit('telegram' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
