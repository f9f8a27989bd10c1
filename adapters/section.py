"""The section of a platform in `config.yaml`: what all platforms have in common, and the types that sections are made of."""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, SecretStr, StringConstraints
from pydantic_core import CoreSchema, PydanticCustomError

NO_SECRET = SecretStr("")


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Returns the docstrings below the attributes of a module's classes: class → attribute → text. Nothing where there is no source."""
    try:
        body = ast.parse(inspect.getsource(sys.modules[module])).body
    except (OSError, TypeError):
        return {}
    found: dict[str, dict[str, str]] = {}
    for kind in (node for node in body if isinstance(node, ast.ClassDef)):
        for attribute, below in pairwise(kind.body):
            match attribute, below:
                case ast.AnnAssign(target=ast.Name() as target), ast.Expr(value=ast.Constant(value=str(text))):
                    found.setdefault(kind.name, {})[target.id] = inspect.cleandoc(text)
                case _:
                    pass
    return found


class Section(BaseModel):
    """No key is required and none is unknown; what a key does is said by the docstring below it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    keys_from: ClassVar[type[BaseModel] | None] = None
    """The model that has the docstrings of keys that were copied from it."""

    @classmethod
    def descriptions(cls) -> Mapping[str, str]:
        """Returns what each key does. Read from the source when somebody asks: pydantic's `use_attribute_docstrings` would read it at each start,
        for a tenth of its time."""
        models = cls.keys_from or cls, *reversed(cls.__mro__[: cls.__mro__.index(BaseModel)])
        written = [_docstrings(each.__module__).get(each.__name__, {}) for each in models]
        texts = {name: text for found in written for name, text in found.items() if name in cls.model_fields}
        return texts | {name: field.description for name, field in cls.model_fields.items() if field.description}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        reference = handler(core_schema)
        for name, text in cls.descriptions().items():
            handler.resolve_ref_schema(reference)["properties"][name]["description"] = text
        return reference


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
