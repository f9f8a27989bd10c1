"""The texts that are written into a new home: the documented example, and the schema for editors."""

from pathlib import Path as File

_PACKAGED = File(__file__).parents[1] / "config.example.yaml"
_CHECKED_OUT = File(__file__).parents[2] / "config.example.yaml"


def example() -> str:
    """The documented example, from the installed package or from the checkout."""
    return (_PACKAGED if _PACKAGED.exists() else _CHECKED_OUT).read_text("utf-8")


def schema() -> str:
    """The JSON schema that editors use. Every text may also be a reference such as ${NAME}."""
    import json

    from gateway.config.model import Config

    return json.dumps(Config.model_json_schema(), indent=2, ensure_ascii=False) + "\n"
