"""What messages said when they were taken in. Platforms tell of edits that change no word: a link got its preview, a mark was set."""

from sessions.messages import Inbound, InboundKind

_Message = tuple[str, str, str]


class EditFilter:
    """Of the last `kept` messages, and only in memory: after a restart such an edit counts as one."""

    def __init__(self, kept: int = 4_096) -> None:
        self._kept = kept
        self._known: dict[_Message, int] = {}

    def note(self, inbound: Inbound) -> None:
        """Call it once the message is on disk."""
        message = _message(inbound)
        if inbound.kind is InboundKind.EDIT:
            self._known.pop(message, None)
        elif inbound.kind is not InboundKind.MESSAGE or message in self._known:  # sent again, maybe after an edit
            return
        self._known[message] = _wording(inbound)
        if len(self._known) > self._kept:
            del self._known[next(iter(self._known))]

    def is_unchanged(self, inbound: Inbound) -> bool:
        """An edit that says what we know already."""
        return inbound.kind is InboundKind.EDIT and self._known.get(_message(inbound)) == _wording(inbound)


def _message(inbound: Inbound) -> _Message:
    return inbound.address.platform, inbound.address.chat_id, inbound.message_id


def _wording(inbound: Inbound) -> int:
    """A file's reference may be another each time."""
    files = tuple((file.kind, file.name, file.size) for file in inbound.attachments)
    return hash((inbound.text, inbound.mentioned, files))
