"""The manifest that people paste asks for what the code uses, and for nothing else."""

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import yaml

from adapters.slack import app_manifest
from adapters.slack.app_manifest import create_link

MANIFEST = yaml.safe_load((Path(__file__).parents[4] / "docs/platforms/slack-manifest.yaml").read_text())


def test_the_page_that_setup_opens_has_the_same_manifest_filled_in() -> None:
    filled_in = parse_qs(urlsplit(create_link()).query)["manifest_json"][0]
    assert json.loads(filled_in) == MANIFEST


def test_its_scopes_are_those_that_the_code_uses() -> None:
    assert set(MANIFEST["oauth_config"]["scopes"]["bot"]) == app_manifest.NEEDED | app_manifest.USED


def test_its_events_are_those_that_the_code_hears() -> None:
    assert set(MANIFEST["settings"]["event_subscriptions"]["bot_events"]) == app_manifest.EVENTS


def test_every_event_is_read_by_the_normalizer_or_the_adapter() -> None:
    code = "".join((Path(app_manifest.__file__).parent / name).read_text() for name in ("normalize.py", "adapter.py"))
    for event in app_manifest.EVENTS:
        name = "message" if event.startswith("message.") else event
        assert f'"{name}"' in code


def test_every_method_that_the_code_calls_has_its_scope() -> None:
    from adapters.testing.slack_rules import SCOPES

    code = "".join(path.read_text() for path in Path(app_manifest.__file__).parent.glob("*.py"))
    used = {scope for method, scope in SCOPES.items() if f'"{method}"' in code}
    assert used <= app_manifest.NEEDED | app_manifest.USED


def test_the_one_command_is_the_one_that_is_understood() -> None:
    assert [one["command"] for one in MANIFEST["features"]["slash_commands"]] == [app_manifest.COMMAND]
    assert MANIFEST["settings"]["socket_mode_enabled"]
    assert "agent_view" in MANIFEST["features"]
