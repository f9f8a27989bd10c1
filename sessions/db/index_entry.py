"""What the search index holds of one message."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`ns` is an opaque token of the namespace. `words` and `ctx`: its own content words and its neighbours', each once."""

    message_id: int
    ns: str
    sender: str
    text: str
    words: str
    ctx: str
