"""What an admin's shell knows of the service that runs a home."""

from pathlib import Path

import pytest

from gateway.cli import service_view as module
from gateway.cli.service_view import service_sources, service_view
from gateway.config.problems import BadConfig
from gateway.config.reading import read

BOT = "platforms: {telegram: {enabled: true, token: '${TELEGRAM_TOKEN}', allowed_users: ['1']}}\n"


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "system"
    folder.mkdir()
    monkeypatch.setattr(module, "UNIT_FOLDERS", (folder,))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    (folder / "config.yaml").write_text(BOT)
    return folder


def unit(units: Path, home: Path, *lines: str, name: str = "hermes-gateway.service") -> None:
    text = "\n".join(["[Service]", f"Environment=HERMES_HOME={home} LOG=debug", "# LoadCredential=NO:/no", *lines])
    (units / name).write_text(text)


def token(home: Path, **environ: str) -> str:
    loaded = read(service_sources(home, environ))
    return loaded.config.platforms.telegram.token.get_secret_value()


def test_a_credential_of_the_unit_is_not_missing(units, home, tmp_path):
    (tmp_path / "token").write_text("123:abc\n")
    unit(units, home, f"LoadCredential=TELEGRAM_TOKEN:{tmp_path / 'token'}")

    assert token(home) == "123:abc"


def test_one_in_a_drop_in_counts_too(units, home):
    unit(units, home)
    folder = units / "hermes-gateway.service.d"
    folder.mkdir()
    (folder / "token.conf").write_text("[Service]\nSetCredential=TELEGRAM_TOKEN:456:def\n")

    assert token(home) == "456:def"


def test_one_that_this_user_cannot_read_counts_as_set(units, home):
    unit(units, home, "LoadCredentialEncrypted=TELEGRAM_TOKEN:/etc/credstore.encrypted/telegram")

    assert token(home)
    assert service_view(home).unreadable == {"TELEGRAM_TOKEN"}


def test_the_shells_own_variables_are_not_the_services(units, home):
    unit(units, home)

    with pytest.raises(BadConfig, match="1 problem"):
        token(home, TELEGRAM_TOKEN="789:ghi")


def test_a_unit_of_another_home_says_nothing(units, home, tmp_path):
    unit(units, tmp_path / "other", "SetCredential=TELEGRAM_TOKEN:456:def")

    assert service_view(home).unit == ""
    assert token(home, TELEGRAM_TOKEN="789:ghi") == "789:ghi"


def test_variables_of_a_file_count(units, home, tmp_path):
    (tmp_path / "environment").write_text("# the bot\nTELEGRAM_TOKEN='1:x'\n")
    unit(units, home, f"EnvironmentFile=-{tmp_path / 'environment'}")

    assert token(home) == "1:x"


def test_inside_the_service_units_are_not_looked_at(units, home, tmp_path):
    unit(units, home, "SetCredential=TELEGRAM_TOKEN:456:def")
    (tmp_path / "TELEGRAM_TOKEN").write_text("mine")

    assert token(home, CREDENTIALS_DIRECTORY=str(tmp_path)) == "mine"
