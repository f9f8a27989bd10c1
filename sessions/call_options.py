"""Options of one call, such as the caller's tools and format, and how a run stores them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

JSON = dict[str, Any]
_LISTS = frozenset({"layered", "tools"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The same from the HTTP schema to the model's request. Empty fields are not stored.

    `layered`: system messages on top of the agent's own. `tools`: the caller's own, whose calls go back to the caller.
    `sampling`: what the endpoint gets as it is (temperature, tool_choice and the like).
    """

    model: str | None = None
    system_prompt: str | None = None
    layered: tuple[str, ...] = ()
    tools: tuple[JSON, ...] = ()
    response_format: JSON | None = None
    sampling: JSON = field(default_factory=dict[str, Any])
    max_output_tokens: int | None = None

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset(tool["function"]["name"] for tool in self.tools)

    @property
    def forces_tool(self) -> bool:
        """True when `tool_choice` demands one of the caller's tools: the gateway's own are not offered then."""
        return self.sampling.get("tool_choice") not in (None, "auto", "none")

    def over(self, other: Self) -> Self:
        """Returns these options, completed by those of `other`."""
        return replace(other, **self.to_stored())

    def to_stored(self) -> JSON:
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> Self:
        """Ignores keys that it does not know."""
        known: JSON = {each.name: stored[each.name] for each in fields(cls) if stored.get(each.name)}
        for name in _LISTS & known.keys():
            known[name] = tuple(known[name])
        return cls(**known)
