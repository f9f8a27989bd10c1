"""Reads the address of the database without reading the rest of the configuration."""

import re
from collections.abc import Mapping
from pathlib import Path as File

from gateway.config.sources import Sources, finder, without_references

_VARIABLE = "HERMES_DATABASE__URL"
_WRITTEN = re.compile(r"""\burl["']?:[ \t]*(?!["']{2}|#)\S""")


def database_url(home: File, environ: Mapping[str, str]) -> str:
    """Empty: SQLite in the home. Quick, and checks nothing: a file with mistakes counts as one without an address."""
    sources = Sources.of(home, environ)
    variables = sources.variables()
    written = variables[_VARIABLE] if _VARIABLE in variables else _from_yaml(sources.yaml)
    return without_references(written, finder(sources))


def _from_yaml(text: str) -> str:
    """Parses nothing where no address is written: most commands should not wait for a YAML reader."""
    if _WRITTEN.search(text) is None:
        return ""
    from gateway.config.yaml_nodes import NotYaml, read_yaml

    try:
        written = read_yaml(text).value(("database", "url"))
    except NotYaml:
        return ""
    return written if isinstance(written, str) else ""
