"""Says answers aloud: the words of a text as one would read them to somebody, and the recording of them."""

import asyncio
import re
from collections.abc import Iterator

from adapters.text import off_the_loop
from adapters.text.blocks import Fence, Paragraph, Table
from adapters.text.markdown import parse
from gateway.agent.models.speech import NotSpoken
from gateway.attachments.outgoing_files import keep_recording, recording
from gateway.context import App
from gateway.observe.logging import get_logger
from gateway.texts import say
from sessions.messages import Attachment, AttachmentKind

log = get_logger(__name__)

MOST_SPOKEN = 3_500
"""Characters of an answer that are said aloud, about four minutes. Endpoints take 4,096 at most."""
_ADDRESS = re.compile(r"https?://(?:www\.)?([^\s/?#)]+)[^\s)]*")
_END_OF_SENTENCE = re.compile(r"[.!?…。！？](?=\s)")  # of Chinese and Japanese, too


async def said_aloud(app: App, dedup_key: str, markdown: str) -> Attachment | None:
    """Returns the recording of this text, which belongs to the message with this key; None when there can be none. One that was made before
    a crash is taken again.
    """
    path = recording(app.outgoing, dedup_key)
    try:
        if app.files is not None:  # whoever sent before may have made it
            await app.files.local([str(path)])
        if not await asyncio.to_thread(path.exists):
            if app.speaker is None:
                return None
            words = await off_the_loop(markdown, spoken_words, markdown)
            await asyncio.to_thread(keep_recording, path, await app.speaker.speak(words))
            if app.files is not None:
                await app.files.put(path)
        size = (await asyncio.to_thread(path.stat)).st_size
    except (NotSpoken, OSError) as error:  # the text is what counts: it is sent without waiting any longer
        log.warning("voice.not_spoken", error=str(error))
        return None
    return Attachment(kind=AttachmentKind.VOICE, name=path.name, mime="audio/ogg", size=size, path=str(path))


def spoken_words(markdown: str) -> str:
    """Returns what is said of a text: no marks, no code and no tables, of addresses the host, and of a long text the beginning."""
    words = "\n".join(_said(markdown))
    if len(words) <= MOST_SPOKEN:
        return words
    begun = words[:MOST_SPOKEN]
    ends = [found.end() for found in _END_OF_SENTENCE.finditer(begun)]
    begun = begun[: ends[-1]] if ends else begun.rpartition(" ")[0] or begun
    return f"{begun}\n{say('voice.rest')}"


def _said(markdown: str) -> Iterator[str]:
    for block in parse(markdown):
        match block:
            case Paragraph(text=text) if text.strip():
                number = f"{block.marker} " if block.marker[:1].isdigit() else ""
                line = number + _ADDRESS.sub(r"\1", text.strip())
                yield line if line[-1] in ".!?…:;,。！？" else f"{line}."  # a pause, also after a heading
            case Fence():
                yield say("voice.code")
            case Table():
                yield say("voice.table")
            case _:
                pass
