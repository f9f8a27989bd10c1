"""Turns a message of a platform into the text of a journal entry."""

from collections.abc import Iterator
from dataclasses import replace

from gateway.texts.quoting import BLANK_LETTERS, as_quoted, escape_speaker_marks
from sessions.inbox_body import InboxMessage
from sessions.keys import ChatKind
from sessions.messages import Inbound, Quote
from sessions.stored_files import StoredFile

QUOTED = 8_000
"""Characters: the longest that somebody can be asked about, and the question behind it still fits."""
_INLINE = 200
_NAME = 64
_BRACKETS = {**str.maketrans("[]［］", "()()"), **dict.fromkeys(map(ord, BLANK_LETTERS))}
"""For names. Brackets mark the speaker in a group, so a name has none; a name of blank letters would be invisible."""
_MARKS = str.maketrans('“”„‟"', "'''''")
_PARENTHESES = str.maketrans("()", "‹›")


def printable(inbound: Inbound) -> Inbound:
    """Removes from the sender's name what could imitate another speaker or control a terminal."""
    quote = inbound.quote
    return replace(
        inbound,
        sender=replace(inbound.sender, name=_printable(inbound.sender.name)),
        quote=replace(quote, sender_name=_in_parentheses(quote.sender_name)) if quote else None,
        forwarded_from=_in_parentheses(inbound.forwarded_from),
    )


def _printable(name: str) -> str:
    return "".join(char for char in name if char.isprintable()).translate(_BRACKETS)[:_NAME].strip()


def _in_parentheses(name: str) -> str:
    """Returns the name without parentheses, because it is written between two."""
    return _printable(name).translate(_MARKS).translate(_PARENTHESES)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… [{len(text) - most:,} more characters]"


def message_text(inbound: Inbound) -> str:
    """Returns the text of the message, with notes about forwarded and quoted words."""
    if not inbound.forwarded_from:
        return inbound.text
    # A forwarded text of several lines is quoted: one of its lines could pass for the sender's own words.
    text = inbound.text if len(inbound.text.splitlines()) <= 1 else as_quoted(inbound.text)
    return f"(forwarded from {inbound.forwarded_from})\n{text}".rstrip()


def inbox_message(inbound: Inbound) -> InboxMessage:
    """Returns the message for the journal, with the files of the message that it replies to."""
    text = _with_quote(message_text(inbound), inbound.quote)
    in_dm = inbound.address.kind is ChatKind.DM
    name = inbound.sender.name or inbound.sender.id
    content = text if in_dm else f"[{name}] {escape_speaker_marks(text)}"
    return InboxMessage(content=content, sender=name, attachments=tuple(_files(inbound)))


def _files(inbound: Inbound) -> Iterator[StoredFile]:
    platform, quote = str(inbound.address.platform), inbound.quote
    for file in inbound.attachments:
        yield StoredFile.from_attachment(file, platform)
    if quote is not None:
        for file in quote.attachments:
            yield StoredFile.from_attachment(file, platform, of=_whose(quote))


def _with_quote(text: str, quote: Quote | None) -> str:
    """Puts the quoted message above the text, line by line, so that it cannot be read as the sender's own words."""
    if quote is None or not (quote.text or quote.attachments):
        return text
    whose = _whose(quote)
    below = "".join(f", {file.kind} below" for file in quote.attachments)
    about = f"{'forwarded from' if quote.forwarded else 'in reply to'} {whose}{below}"
    quoted = shortened(quote.text, QUOTED)
    if len(quoted) <= _INLINE and len(quoted.splitlines()) <= 1:
        return f"({about}: “{quoted.translate(_MARKS).strip()}”)\n{text}"
    return f"({about}:)\n{as_quoted(quoted)}\n\n{text}"


def _whose(quote: Quote) -> str:
    return "you" if quote.from_us else quote.sender_name or "an earlier message"
