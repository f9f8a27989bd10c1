"""The section of a platform in `config.yaml`: what all platforms have in common, and the types that sections are made of."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, StringConstraints
from pydantic_core import PydanticCustomError

NO_SECRET = SecretStr("")


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


Id = Annotated[str, StringConstraints(min_length=1)]
Url = Annotated[str, AfterValidator(_url)]


class PlatformSection(Section):
    """What every platform has in common."""

    enabled: bool = False
    """true: the gateway connects to this platform. false: the rest of its section is kept, but not used."""
    allowed_users: list[Id] = Field(default_factory=list[Id])
    """Stable ids of the people who may talk to the agent, in quotes. Empty: nobody. ["*"]: anybody who finds the bot."""
    allowed_chats: list[Id] = Field(default_factory=list[Id])
    """Groups and channels in which everybody present may talk to the agent. Approvals and /new, /resume, /forget, /stop stay
    with allowed users. ["*"]: every group it is invited to."""
    require_mention: bool = True
    """true: in groups and channels only messages that mention the bot or reply to it are for it. false: it reads all of them."""
    dm_scope: Literal["owner", "per_user", "shared"] = "owner"
    """owner: your direct messages on all platforms share one memory, other people have one each. per_user: everybody has a
    session of their own. shared: all direct messages are one conversation."""
    owner: str = ""
    """The id of the person whom the agent belongs to. Empty: the first of allowed_users at the first start, or the first who is paired;
    they stay the owner, whatever the list says later."""
    group_sessions_per_user: bool = False
    """true: in a group everybody has a conversation of their own with the agent. false: the group shares one."""
    thread_sessions: bool = False
    """true: every thread or topic is a conversation of its own. false: threads belong to the conversation of their chat."""
    unknown_users: Literal["pair", "ignore"] = "pair"
    """pair: a stranger gets a code that you can approve with `hermes pair approve CODE`. ignore: a stranger gets no answer."""
    api_base: Url = ""
    """Another server that speaks this platform's API: a self-hosted one, a proxy, a test double. Empty: the platform itself."""
