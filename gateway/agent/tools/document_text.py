"""Turns web pages and PDFs into text, in a process of its own: a hostile one may take any time and any memory.

The process runs this file by its path and imports nothing else of the gateway, so that only the standard library stands at its top.
"""

import asyncio
import io
import json
import resource
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

HTML = frozenset({"text/html", "application/xhtml+xml"})
PDF = "application/pdf"
_SECONDS = 20
_MEMORY_BYTES = 1 << 30
_LONGEST = 1_000_000
_SHOWN = 24_000
"""Characters that are shown at once; about 6,000 tokens."""
_PART = 12_000


class NoText(Exception):
    """`str()` says why there is no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentText:
    title: str
    pages: tuple[str, ...]

    def shown(self, first: int, address: str) -> str:
        """Returns as many pages from this one on as fit, and how to read the rest. Raises NoText when there is no such page."""
        if not 1 <= first <= len(self.pages):
            raise NoText(f"it has {len(self.pages)} pages")
        parts, length, number = list[str](), 0, first
        for number in range(first, len(self.pages) + 1):
            page = self.pages[number - 1]
            if parts and length + len(page) > _SHOWN:
                return "\n\n".join([*parts, f"[to go on reading: {address}#page={number}]"])
            parts += [f"[page {number} of {len(self.pages)}]", page] if len(self.pages) > 1 else [page]
            length += len(page)
        return "\n\n".join(parts)


def split_address(address: str) -> tuple[str, int]:
    """Returns the address and the number of the page that its end `#page=N` names; 1 without one."""
    place, mark, number = address.rpartition("#page=")
    return (
        (place, int(number)) if mark and number.isascii() and number.isdecimal() and len(number) < 7 else (address, 1)
    )


def in_pages(text: str) -> tuple[str, ...]:
    """Splits a long text between its paragraphs, so that it can be read page by page."""
    pages, rest = list[str](), text
    while len(rest) > _PART:
        end = max(rest.rfind("\n\n", 0, _PART), rest.rfind("\n", _PART // 2, _PART), _PART // 2)
        pages.append(rest[:end].strip("\n"))
        rest = rest[end:]
    return (*pages, rest.strip("\n"))


async def document_text(data: bytes, mime: str, *, url: str = "") -> DocumentText:
    """Returns the readable text: of a page as Markdown with its links, of a PDF page by page. Raises NoText."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        __file__,
        mime,
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(_SECONDS):
            printed, _ = await child.communicate(data)
    except TimeoutError:
        raise NoText(f"to read it takes longer than {_SECONDS} s") from None
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    try:
        found = json.loads(printed)
    except ValueError:  # it was killed by its limits, or failed in a way that its libraries did not expect
        raise NoText("it cannot be read: it is damaged, or too large") from None
    if extra := found.get("missing"):
        from sessions.packages import install_command  # here, because the child has none of our packages

        raise NoText(f"pages and PDFs need a library. Run: {install_command(extra)}")
    if why := found.get("why"):
        raise NoText(why)
    pages = in_pages(found["pages"][0]) if mime != PDF else found["pages"]
    return DocumentText(title=found["title"], pages=tuple(pages))


# --- in the process of its own ---


def _extract(data: bytes, mime: str, url: str) -> dict[str, Any]:
    try:
        return _of_pdf(data) if mime == PDF else _of_page(data, url)
    except ImportError:
        return {"missing": "web"}


def _of_page(data: bytes, url: str) -> dict[str, Any]:
    import trafilatura

    tree: Any = trafilatura.load_html(data)
    if tree is None:  # it does not take a page that leaves `html` out for one
        data = b"<html><body><div>" + data + b"</div></body></html>"
        tree = trafilatura.load_html(data)
    if tree is None:
        return {"why": "it is no page that can be read"}
    title = trafilatura.extract_metadata(tree, default_url=url or None).title
    text = trafilatura.extract(
        tree, url=url or None, output_format="markdown", include_links=True, include_tables=True, favor_recall=True
    )
    # What is too short for an article, or a list of links, is still what the page says.
    text = text or trafilatura.html2txt(data) or "\n".join(tree.xpath("//text()[not(parent::script or parent::style)]"))
    if not text.strip():
        return {"why": "it holds no text, perhaps because scripts show what is on it"}
    return {"title": title or "", "pages": [text[:_LONGEST]]}


def _of_pdf(data: bytes) -> dict[str, Any]:
    import pypdf

    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        return {"why": "it is locked with a password"}
    pages = list[str]()
    for page in reader.pages:
        pages.append(page.extract_text().strip())
        if sum(map(len, pages)) > _LONGEST:
            break
    if not any(pages):
        return {"why": "it holds pictures of pages and no text"}
    title = reader.metadata.title if reader.metadata is not None else None
    return {"title": str(title or ""), "pages": pages}


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    json.dump(_extract(sys.stdin.buffer.read(), sys.argv[1], sys.argv[2]), sys.stdout)


if __name__ == "__main__":
    _main()
