"""Says what a search looks through."""

from collections.abc import Container
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope:
    """What is searched: everything (for the owner of the machine only), one namespace of it, one session key of that, one session.

    `without_run`: the messages of this run are left out, `without`: these. `names_of_senders`: whether a word may also be the name of who
    wrote a message. `messages`: the namespace has at least so many messages, as far as the caller knows.
    """

    ns: str | None = None
    key: str | None = None
    session: str | None = None
    without_run: str | None = None
    without: Container[int] = ()
    names_of_senders: bool = True
    messages: int = 0

    def takes(self, run_id: str | None, session_id: str, key: str, ns: str) -> bool:
        """Returns whether a message of these is in the scope. The namespace is looked at again, whatever the index says."""
        return (
            (self.ns is None or self.ns == ns)
            and (self.key is None or self.key == key)
            and (self.session is None or self.session == session_id)
            and (self.without_run is None or self.without_run != run_id)
        )
