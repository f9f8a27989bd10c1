"""A message from a platform in the words of the journal."""

from dataclasses import replace

from sessions.keys import ChatKind
from sessions.messages import Attachment, Inbound, Quote

_QUOTED = 300
_NAME = 64
_BRACKETS = str.maketrans("[]", "()")


def printable(inbound: Inbound) -> Inbound:
    """A name cannot imitate another speaker, nor do things to the operator's terminal."""
    quote = inbound.quote
    return replace(
        inbound,
        sender=replace(inbound.sender, name=_printable(inbound.sender.name)),
        quote=replace(quote, sender_name=_printable(quote.sender_name)) if quote else None,
        forwarded_from=_printable(inbound.forwarded_from),
    )


def _printable(name: str) -> str:
    return "".join(char for char in name if char.isprintable()).translate(_BRACKETS)[:_NAME]


def words(inbound: Inbound) -> str:
    """What was said, and whose words they are."""
    if not inbound.forwarded_from:
        return inbound.text
    return f"(forwarded from {inbound.forwarded_from})\n{inbound.text}".rstrip()


def body(inbound: Inbound) -> dict[str, object]:
    """The message as it goes into the journal."""
    text = _with_quote(words(inbound), inbound.quote)
    in_dm = inbound.address.kind is ChatKind.DM
    name = inbound.sender.name or inbound.sender.id
    made: dict[str, object] = {"content": text if in_dm else f"[{name}] {text}", "sender": name}
    if inbound.attachments:
        made["attachments"] = [_attachment(inbound, attachment) for attachment in inbound.attachments]
    return made


def _with_quote(text: str, quote: Quote | None) -> str:
    if quote is None or not quote.text:
        return text
    whose = "you" if quote.from_us else quote.sender_name or "an earlier message"
    quoted = quote.text if len(quote.text) <= _QUOTED else quote.text[:_QUOTED] + "…"
    return f"(in reply to {whose}: “{quoted}”)\n{text}"


def _attachment(inbound: Inbound, attachment: Attachment) -> dict[str, object]:
    return {
        "platform": inbound.address.platform,
        "kind": attachment.kind,
        "name": attachment.name,
        "mime": attachment.mime,
        "size": attachment.size,
        "ref": attachment.ref,
    }
