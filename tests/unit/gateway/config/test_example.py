"""The example documents every key, and is right."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from adapters.registry import OUR_OWN, is_built
from gateway.config.editing import example, schema
from gateway.config.model import Config
from gateway.config.reading import read
from gateway.config.sources import REFERENCE, Sources
from gateway.config.validation import takes
from gateway.config.yaml_nodes import read_yaml

COMMENTED = re.compile(r"^( *)# ((?:  )*(?:- )?\{?[a-z_]+:(?: .*)?)$", re.MULTILINE)


def uncommented() -> str:
    """Every optional key switched on."""
    return COMMENTED.sub(r"\1\2", example())


def fields(path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every key with its documentation; `*` stands for a free name, 0 for each element of a list."""
    for name, key in (takes(Config, path) or {}).get("properties", {}).items():
        at = (*path, name)
        found = takes(Config, at)
        yield at, key.get("description") or found.get("description", "")
        if "items" in found or "patternProperties" in found:
            at = (*at, 0 if "items" in found else "*")
        yield from fields(at)


def written() -> set[tuple[str | int, ...]]:
    """The keys of the file, as `fields` names them."""
    found: set[tuple[str | int, ...]] = set()
    for place in read_yaml(uncommented(), "").places:
        path = place
        for end in range(1, len(path) + 1):
            free = "patternProperties" in (takes(Config, path[: end - 1]) or {})
            part = 0 if isinstance(path[end - 1], int) else "*" if free else path[end - 1]
            path = (*path[: end - 1], part, *path[end:])
        found.add(path)
    return found


def test_it_is_good_as_it_is():
    found = read(Sources(yaml=example()))

    assert found.warnings == ()
    assert found.config == Config()


def test_it_is_good_with_everything_switched_on():
    names = {match[1]: "x" * 32 for match in REFERENCE.finditer(uncommented())}
    found = read(Sources(yaml=uncommented().replace("enabled: false", "enabled: true"), environ=names))

    assert found.warnings == ()


def test_it_documents_every_key():
    later = {("platforms", name) for name in OUR_OWN if not is_built(name)}
    known = {path for path, _ in fields() if path[:2] not in later}

    assert known - written() == set()


def test_every_key_says_what_follows_from_it():
    assert [path for path, text in fields() if len(text) < 5] == []


def test_its_first_lines_help():
    lines = example().splitlines()

    assert lines[0] == "# yaml-language-server: $schema=./config.schema.json"
    assert "hermes config check" in "\n".join(lines[:6])
    assert "Saving is enough" in "\n".join(lines[:6])


@pytest.mark.parametrize("text", [example(), uncommented()], ids=["as it is", "uncommented"])
def test_it_fits_the_schema_of_editors(text):
    jsonschema.validate(yaml.safe_load(text), json.loads(schema()))


def test_the_schema_has_the_documentation():
    reset = json.loads(schema())["$defs"]["SessionResetSection"]

    assert reset["additionalProperties"] is False
    assert reset["properties"]["mode"]["enum"] == ["idle", "daily", "both", "none"]
    assert "silence" in reset["properties"]["mode"]["description"]


def test_the_defaults_in_comments_are_the_defaults():
    """A commented number or switch that says what the default is, is the default, unless it shows something else on purpose."""
    shown = yaml.safe_load(uncommented())["limits"]
    on_purpose = {
        "tokens_per_day",
        "spend_per_day",
        "price_per_million_input_tokens",
        "price_per_million_output_tokens",
    }
    defaults = Config().limits.model_dump()

    assert {key: value for key, value in shown.items() if key not in on_purpose} == {
        key: value for key, value in defaults.items() if key not in on_purpose
    }


def test_the_package_ships_it():
    pyproject = (Path(__file__).parents[4] / "pyproject.toml").read_text()

    assert '"config.example.yaml" = "gateway/config.example.yaml"' in pyproject
