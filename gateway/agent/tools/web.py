"""`web_fetch` reads pages and PDFs, `web_search` asks the search engine that the configuration names."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated

import aiohttp
from pydantic import BaseModel, Field, ValidationError
from yarl import URL

from gateway.agent.tools.document_text import HTML, PDF, DocumentText, NoText, document_text, in_pages, split_address
from gateway.agent.tools.registry import Arguments, FromOutside, Tool, ToolContext, ToolError
from gateway.attachments.safe_fetch import Fetcher, NotFetched
from gateway.config.sections import WebSection
from sessions.clock import Clock

PAGE_BYTES = 10_000_000
KEPT_MS = 15 * 60_000
_KEPT_CHARS = 4_000_000
_AT_ONCE = 8
"""So many pages are read at the same time: each may take 10 MB here and 1 GiB in the process that reads it."""
_SEARCH_SECONDS, _SEARCH_BYTES, _HITS = 20, 2_000_000, 8
_BRAVE = "https://api.search.brave.com"


@dataclass(frozen=True, slots=True)
class _CachedPage:
    until: int
    url: str
    document: DocumentText


class Web:
    """Reads pages, and keeps the last ones for a while, so that reading on fetches nothing anew. `section`: the configuration in force."""

    def __init__(self, fetcher: Fetcher, clock: Clock, section: WebSection | None = None) -> None:
        self.section = section or WebSection()
        self._fetcher = fetcher
        self._clock = clock
        self._kept: OrderedDict[str, _CachedPage] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def read(self, address: str) -> tuple[str, DocumentText]:
        """Returns where the document was found after all redirects, and its text. Raises NotFetched and NoText."""
        kept = self._kept.get(address)
        if kept is None or not kept.until - KEPT_MS <= self._clock() < kept.until:
            async with self._turns:
                fetched = await self._fetcher.fetch(address, PAGE_BYTES)
                document = await _text_of(fetched.data, fetched.mime, fetched.url)
            kept = self._kept[address] = _CachedPage(self._clock() + KEPT_MS, fetched.url, document)
            while len(self._kept) > 1 and sum(map(_size, self._kept.values())) > _KEPT_CHARS:
                self._kept.popitem(last=False)
        return kept.url, kept.document


def _size(kept: _CachedPage) -> int:
    return sum(map(len, kept.document.pages))


async def _text_of(data: bytes, mime: str, url: str) -> DocumentText:
    if mime == PDF or mime in HTML:
        return await document_text(data, mime, url=url)
    if not (mime.startswith("text/") or mime.endswith(("json", "xml", "yaml", "javascript"))) or b"\0" in data[:8_000]:
        raise NoText(f"it is no text but {mime or 'of an unknown kind'}, {len(data):,} bytes")
    return DocumentText(title="", pages=await asyncio.to_thread(in_pages, data.decode("utf-8", errors="replace")))


class WebFetchArguments(Arguments):
    url: Annotated[str, Field(max_length=4_096)]


async def web_fetch(place: ToolContext, arguments: WebFetchArguments) -> FromOutside:
    """Read a web page or a PDF at an http(s) address."""
    address, page = split_address(arguments.url)
    address = address if "://" in address else f"https://{address}"
    if place.web is None:
        raise ToolError("nothing is fetched here")
    try:
        found, document = await place.web.read(address)
        text = document.shown(page, address)
    except (NotFetched, NoText) as error:
        raise ToolError(f"{str(error).rstrip('.')}") from error
    return FromOutside(f"web page {found}", f"{document.title}\n\n{text}" if document.title and page == 1 else text)


class _Hit(BaseModel):
    url: Annotated[str, Field(max_length=4_096)]
    title: str = ""
    content: str = ""  # of SearXNG
    description: str = ""  # of Brave


class _Hits(BaseModel):
    results: list[_Hit] = []


class _SearchAnswer(_Hits):
    web: _Hits = _Hits()  # of Brave


class WebSearchArguments(Arguments):
    query: Annotated[str, Field(max_length=400)]


async def web_search(place: ToolContext, arguments: WebSearchArguments) -> FromOutside:
    """Search the web. Read what looks right with web_fetch before you rely on it."""
    if place.web is None:
        raise ToolError("nothing is searched here")
    section = place.web.section
    try:
        async with asyncio.timeout(_SEARCH_SECONDS):
            answer = await _asked(section, arguments.query)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        # What it sent instead is not repeated: here it would stand outside of what is marked as data.
        why = "no list of results" if isinstance(error, ValidationError) else error or "too late"
        raise ToolError(f"the search engine ({section.search}) does not answer as it should: {why}") from error
    lines = [
        f"{number}. {_line(hit.title)}\n{hit.url}\n{_line(hit.content or hit.description)}".strip()
        for number, hit in enumerate([*answer.results, *answer.web.results][:_HITS], 1)
    ]
    return FromOutside(f"results of a web search for {arguments.query}", "\n\n".join(lines) or "Nothing was found.")


def _line(text: str) -> str:
    return " ".join(text.split())[:500]


async def _asked(section: WebSection, query: str) -> _SearchAnswer:
    """Asks the engine that the operator has named; it may well stand in a private network."""
    if section.search == "brave":
        url = URL(section.url or _BRAVE) / "res/v1/web/search" % {"q": query, "count": str(_HITS)}
        headers = {"X-Subscription-Token": section.api_key.get_secret_value(), "Accept": "application/json"}
    else:
        url, headers = URL(section.url) / "search" % {"q": query, "format": "json"}, {"Accept": "application/json"}
    async with (
        aiohttp.ClientSession(headers=headers, cookie_jar=aiohttp.DummyCookieJar()) as session,
        session.get(url, allow_redirects=False) as reply,  # a redirect would take the key along
    ):
        if reply.status != 200:
            raise ValueError(f"status {reply.status}")
        data = bytearray()
        async for piece in reply.content.iter_chunked(65_536):
            data += piece
            if len(data) > _SEARCH_BYTES:
                raise ValueError("its answer has no end")
        return _SearchAnswer.model_validate_json(bytes(data))


FETCH = Tool(
    name="web_fetch", arguments=WebFetchArguments, function=web_fetch, idempotent=True, reads_only=True, folder=""
)
SEARCH = Tool(
    name="web_search", arguments=WebSearchArguments, function=web_search, idempotent=True, reads_only=True, folder=""
)
