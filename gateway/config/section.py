"""What all sections are made of."""

from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """No key is required and none is unknown; what a key does is said by the docstring below it."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )


def _url(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if text and not (scheme in {"http", "https", "ws", "wss"} and separator and rest):
        raise PydanticCustomError("url", "no URL")
    return text


def _time_zone(name: str) -> str:
    try:
        if name:
            ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown name, "../x", and "Europe", which is a folder
        raise PydanticCustomError("time_zone", "no time zone") from None
    return name


Id = Annotated[str, StringConstraints(min_length=1)]
Url = Annotated[str, AfterValidator(_url)]
TimeZone = Annotated[str, AfterValidator(_time_zone)]
