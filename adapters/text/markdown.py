"""One parse of Markdown into neutral blocks. Plain text that means nothing in Markdown comes through as it is; nothing a model writes
is dropped.

Every block is read by the quick reader, or by the parser where that one is in doubt: both make the same of it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from markdown_it.token import Token

from adapters.text import outline
from adapters.text.blocks import Block, Heading, Paragraph, Table
from adapters.text.leaves import Prose
from adapters.text.thorough import Document, TooDeepError

PARSED_CHARS = 30_000  # what follows is plain text: nobody reads it formatted, and parsing time stays bounded


def parse(markdown: str) -> tuple[Block, ...]:
    head, tail = markdown[:PARSED_CHARS], markdown[PARSED_CHARS:]
    document = Document(head)
    try:
        blocks = quickly(document)
        if blocks is None:
            blocks = list(document.whole())
    except TooDeepError:
        return _plain(markdown)
    return (*blocks, *_unused(document.definitions, blocks), *_plain(tail)) or _plain(markdown)


def quickly(document: Document) -> list[Block] | None:
    """None where only the parser as a whole gets it right."""
    blocks: list[Block] = []
    for part in list(_outline(document)):
        match part:
            case Prose():
                text, spans = document.inline(part.text)
                kind = Heading if "level" in part.fields else Paragraph
                if text.strip():
                    blocks.append(kind(text=text, spans=spans, **part.fields))
                elif "marker" in part.fields:  # the next block of the item gets it
                    return None
            case Table():
                blocks.append(_read_cells(part, document))
            case Block():
                blocks.append(part)
            case tokens:
                blocks += document.blocks(tokens)
    return blocks


def _outline(document: Document) -> Iterator[outline.Found | Sequence[Token]]:
    text, at = document.text + "\n", 0
    while at < len(text):
        usual = outline.read(text, at)
        if usual is None:
            tokens, at = document.block(at)
            yield tokens
        else:
            found, at = usual
            yield from found


def _read_cells(table: Table, document: Document) -> Table:
    def read(cells: Iterable[str]) -> tuple[str, ...]:
        return tuple(document.inline(cell)[0].replace("\n", " ") for cell in cells)

    return Table(header=read(table.header), rows=tuple(map(read, table.rows)), quote=table.quote)


def _plain(text: str) -> tuple[Block, ...]:
    return tuple(Paragraph(text=part) for part in re.split(r"\n\s*\n", text.strip()) if part)


def _unused(definitions: Mapping[str, Mapping[str, str]], blocks: Sequence[Block]) -> Iterator[Block]:
    """Lists of sources at the end of an answer are link definitions to Markdown, and would vanish unless something links to them."""
    used = {span.url for block in blocks if isinstance(block, Paragraph) for span in block.spans}
    for label, definition in definitions.items():
        if definition["href"] not in used:
            yield Paragraph(text=f"[{label}]: {definition['href']}", tight=True)
