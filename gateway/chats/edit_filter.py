"""Recognises edits that change no word: platforms also report when a link gets its preview or a reaction is set."""

from sessions.messages import Inbound, InboundKind

_Message = tuple[str, str, str]


class EditFilter:
    """Remembers the texts of the last `kept` messages, in memory only: after a restart such an edit counts as a real one."""

    def __init__(self, kept: int = 4_096) -> None:
        self._kept = kept
        self._known: dict[_Message, int] = {}

    def note(self, inbound: Inbound) -> None:
        """Remembers the text of a message. Called after it was committed."""
        message = _message(inbound)
        if inbound.kind is InboundKind.EDIT:
            self._known.pop(message, None)
        elif inbound.kind is not InboundKind.MESSAGE or message in self._known:  # sent again, maybe after an edit
            return
        self._known[message] = _wording(inbound)
        if len(self._known) > self._kept:
            del self._known[next(iter(self._known))]

    def is_unchanged(self, inbound: Inbound) -> bool:
        """Returns True for an edit whose words are known already."""
        return inbound.kind is InboundKind.EDIT and self._known.get(_message(inbound)) == _wording(inbound)


def _message(inbound: Inbound) -> _Message:
    return inbound.address.platform, inbound.address.chat_id, inbound.message_id


def _wording(inbound: Inbound) -> int:
    """The words of a message, without references to files, which change from time to time."""
    files = tuple((file.kind, file.name, file.size) for file in inbound.attachments)
    # The hash alone: 4,096 texts of a group would be megabytes, and a wrong match only leaves out one edit.
    return hash((inbound.text, inbound.mentioned, files))
