"""The entry of one message in the search index."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`ns`: the namespace as one word of the index (`query.namespace_token`). `words`: the content words of the message, each once.
    `ctx`: those of the messages around it, two before and one after."""

    message_id: int
    ns: str
    sender: str
    text: str
    words: str
    ctx: str
