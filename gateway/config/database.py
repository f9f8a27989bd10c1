"""The address of the database without the rest of the configuration."""

from collections.abc import Mapping
from pathlib import Path as File

from gateway.config.sources import REFERENCE, Sources, lookup

_VARIABLE = "HERMES_DATABASE__URL"


def database_url(home: File, environ: Mapping[str, str]) -> str:
    """Empty: SQLite in the home. Quick, and checks nothing: a file with mistakes counts as one without an address."""
    sources = Sources.of(home, environ)
    variables = sources.variables()
    written = variables[_VARIABLE] if _VARIABLE in variables else _from_yaml(sources.yaml)
    return REFERENCE.sub(lambda match: lookup(sources, variables, match[1]) or "", written).replace("$${", "${")


def _from_yaml(text: str) -> str:
    if "database" not in text:
        return ""
    from gateway.config.marks import NotYaml, locate, read_yaml

    try:
        node, _, exact = locate(read_yaml(text, "").root, ("database", "url"))
    except NotYaml:
        return ""
    return node.data if exact and isinstance(node.data, str) else ""
