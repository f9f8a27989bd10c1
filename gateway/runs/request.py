"""Builds the requests of one run, from one consistent read of everything that its next step depends on.

A smaller one follows when the endpoint has refused one for its length. Files and pictures become parts of the messages.
"""

import asyncio
import binascii
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from gateway.agent import prompt
from gateway.agent.memory import recall
from gateway.agent.memory.embeddings import Embeddings
from gateway.agent.models.interface import JSON, Answer, ContextOverflow, ModelRequest
from gateway.agent.profile import AgentProfile
from gateway.agent.prompt import Material
from gateway.agent.system_prompt import gateway_blocks
from gateway.agent.tools import skill
from gateway.agent.tools.registry import Toolbox
from gateway.agent.window import Window, window_of
from gateway.context import App
from gateway.runs.farewell import with_request
from gateway.runs.history import JournalTails, MemoryViews, Remembered
from gateway.runs.live import NO_REPLY
from gateway.texts import say
from sessions import memory, runs, spending, store
from sessions.keys import ChatKind
from sessions.memory.vectors import QueryVector
from sessions.messages import Attachment, AttachmentKind
from sessions.records import Message, Role, Run, RunKind, Session, Source
from sessions.runs import farewells
from sessions.search import message_index
from sessions.search.message_index import FoundMessage

if TYPE_CHECKING:
    from gateway.attachments.shared_files import SharedFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`folded_to`: messages up to this one are in notes and digest; `older`: how many before `history` are not. `spent`: the tokens in
    and out of the day, where they are limited. `former`: the session before this one, if it was reset and the chat has not been told;
    `former_notes`: how many notes its farewell has saved. `has_past`: an earlier session of this key has ended."""

    run: Run
    session: Session
    calls: Sequence[Message]
    unread: bool
    history: Sequence[Message]
    folded_to: int
    older: int
    remembered: Remembered
    spent: tuple[int, int]
    former: Session | None = None
    former_notes: int = 0
    has_past: bool = False


def take_snapshot(conn: Connection, run_id: str, day: str, tails: JournalTails, views: MemoryViews) -> Snapshot:
    """Reads the snapshot. `day`: the day whose tokens are counted; empty: nothing is limited by the day."""
    run = runs.get(conn, run_id)
    session = store.get(conn, run.session_id)
    # Only a chat is told of a reset, and only above an answer that is sent there.
    tells = run.kind is RunKind.CHAT and run.route is not None
    former = store.announced_by(conn, session) if tells else None
    history = tails.history(conn, run, session)
    folded_to = memory.folded_to(conn, session.id)
    first = history[0].id if history else 0
    # Counted only where it can be more than none: most sessions fit into the history as a whole.
    before = max(0, session.message_count - len(history)) if first > folded_to else 0
    older = memory.count_unfolded(conn, session.id, before=first) if before and folded_to else before
    return Snapshot(
        run=run,
        session=session,
        calls=runs.open_calls(conn, run),
        unread=bool(runs.new_messages(conn, run)),
        history=with_request(history, run) if run.kind is RunKind.FAREWELL else history,
        folded_to=folded_to,
        older=older,
        remembered=views.of(conn, session.ns),
        spent=spending.of_day(conn, day) if day else (0, 0),
        former=former,
        former_notes=farewells.notes_saved(conn, former.id) if former is not None else 0,
        has_past=store.has_ended(conn, session.session_key),
    )


MAX_IMAGE = 5_000_000
NEW, EARLIER = 10, 4
"""How many messages show their parts, and how many parts of each: of the messages that are being answered (an album has ten), and of
those before."""
_SLICE = 49_152
"""Bytes that make 64 kB of base64."""
_ADDRESSES = ("https://", "http://", "data:")
_KINDS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def parts_to_show(
    history: Sequence[Message], run_id: str, *, every: bool, workspaces: Path, shared: "SharedFiles | None" = None
) -> Mapping[int, Sequence[JSON]]:
    """Returns the pictures and files that the model is shown, by message. `every`: all of the new ones, however many and large. A file that
    does not lie below `workspaces` is not read, whoever has written its path. `shared`: brings those that others have stored.
    """
    with_parts = [message for message in history if message.attachments]
    if not with_parts:  # as nearly always
        return {}
    root = await asyncio.to_thread(workspaces.resolve)
    new = [message for message in with_parts if message.run_id == run_id]
    earlier = [message for message in with_parts if message.run_id != run_id][-EARLIER:]
    if shared is not None:
        looked_at = earlier + (new if every else new[-NEW:])
        stored = {file.path for message in looked_at for file in message.attachments if file.path}
        local = await shared.local(stored) if stored else {}
        new, earlier = ([_placed(message, local) for message in some] for some in (new, earlier))
    shown = {message.id: (await _parts_of(message, root))[:EARLIER] for message in earlier}
    if every:
        return shown | {message.id: await _parts_of(message, root, whole=True) for message in new}
    return shown | {message.id: (await _parts_of(message, root))[:NEW] for message in new[-NEW:]}


def _placed(message: Message, local: Mapping[str, str]) -> Message:
    files = tuple(replace(file, path=local.get(file.path, file.path)) for file in message.attachments)
    return replace(message, attachments=files)


async def _parts_of(message: Message, root: Path, *, whole: bool = False) -> Sequence[JSON]:
    """Returns the parts of one message: saved files as data URLs, addresses as they are. A file that is gone or, unless `whole`, too
    large is left out; its name is in the text.
    """
    parts = [await _part(file, root, None if whole else MAX_IMAGE) for file in message.attachments]
    return [part for part in parts if part is not None]


async def _part(file: Attachment, root: Path, limit: int | None) -> JSON | None:
    sent_as = file.part or ("image_url" if file.kind is AttachmentKind.IMAGE else None)
    match sent_as:
        case "image_url" if file.url:
            return _picture(file.url, file) if file.url.startswith(_ADDRESSES) else None
        case "image_url" if file.path and (file.mime in _KINDS or file.part):
            data = await asyncio.to_thread(_read, Path(file.path), root, file.mime, limit)
            return None if data is None else _picture(data, file)
        case "file" if file.path:
            data = await asyncio.to_thread(_read, Path(file.path), root, file.mime, limit)
            return None if data is None else {"type": "file", "file": {"filename": file.name, "file_data": data}}
        case "input_audio" if file.path:
            data = await asyncio.to_thread(_read, Path(file.path), root, file.mime, limit)
            sound = {"data": (data or "").partition(",")[2], "format": file.detail or ""}
            return None if data is None else {"type": "input_audio", "input_audio": sound}
        case _:
            return None


def _picture(url: str, file: Attachment) -> JSON:
    detail = {"detail": file.detail} if file.detail else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _read(path: Path, root: Path, mime: str, limit: int | None) -> str | None:
    """Returns the file as a data: URL; None where it is gone, too large, or not below `root`. Encodes in slices: 18 MB at once would hold the GIL all the
    time.
    """
    try:
        place = path.resolve()
        if not place.is_relative_to(root):
            return None
        # O_NONBLOCK: to open a pipe waits for its writer otherwise, for ever.
        with os.fdopen(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode) or (limit is not None and seen.st_size > limit):
                return None
            slices = iter(lambda: file.read(_SLICE), b"")
            encoded = [binascii.b2a_base64(data, newline=False).decode() for data in slices]
    except OSError:
        return None
    return "".join([f"data:{mime};base64,", *encoded])


EXACT = frozenset({Source.API, Source.THREAD})
"""Sessions of programs: what they send is never cut."""
TURN_TOKENS = 24  # at most, beside the text of a message
SHOWN_ANYWAY, SHOWN_IN_SMALL = 8, 2
"""So many messages before the new one are in the prompt, or very long; they are not searched for. In a small window it is the last exchange."""


INDEXING_SECONDS = 2.0
"""The longest time that an answer waits for messages to be indexed."""


class Requests:
    def __init__(self, app: App, run_id: str) -> None:
        self.app = app
        self._run_id = run_id
        self.core = ""
        self.size = 0  # of the last one, in tokens; what it held is not kept: pictures are large
        self._cut: Sequence[tuple[int, int]] = ()
        self._refused: ContextOverflow | None = None
        self._recalled: tuple[int, Sequence[FoundMessage]] | None = None
        self._most: int | None = None  # tokens of a prompt, once a larger one was refused

    async def build(self, seen: Snapshot, profile: AgentProfile, toolbox: Toolbox) -> ModelRequest:
        """Returns the next request. Raises InputTooLong when what is new does not fit, or nothing smaller is left after a refusal."""
        options = seen.run.options
        wanted = wanted_model(seen)
        await self.app.model.learn_window(wanted)  # before anything is measured against it
        exact = seen.session.source in EXACT
        window = replace(window_of(self.app, wanted), most=self._most)
        remembered = seen.remembered if profile.remembers else Remembered()
        shown = await parts_to_show(
            seen.history, self._run_id, every=exact, workspaces=self.app.workspaces, shared=self.app.files
        )
        material = Material(
            system_prompt=profile.system_prompt,
            gateway_blocks=lambda tools: gateway_blocks(
                seen.session.source, seen.session.session_key, person=_person(seen), tools=tools, small=window.is_small
            ),
            notes=remembered.notes,
            digest=remembered.digest,
            derived=remembered.derived,
            folded_to=seen.folded_to,
            older=seen.older,
            recalled=await self._recall(seen, profile),
            skills=await self._skills(seen.session.ns) if toolbox.tools.get("skill") else (),
            history=seen.history,
            message_count=seen.session.message_count,
            run_id=self._run_id,
            layered=options.layered,
            tools=toolbox.schemas,
            callers_tools=options.tools,
            timezone=self.app.timezone,
            parts=lambda message: shown.get(message.id, ()),
            exact=exact,
        )
        built = prompt.build(
            material, self.app.tokens, window=window, model=wanted, wanted_output=options.max_output_tokens
        )
        if self._refused is not None and built.size >= self.size:  # nothing more can be left out, so no try will fit
            raise self._refused.for_good()
        self.core, self.size, self._cut, self._refused = built.core, built.size, built.cut, None
        self.app.note_prompt(seen.session.ns, built.blocks)
        return replace(
            built.request,
            response_format=options.response_format,
            callers_tools=options.tool_names,
            sampling=options.sampling,
            exact=exact and any(shown.get(each.id) for each in seen.history if each.run_id == self._run_id),
        )

    def search_past(self, conn: Connection, seen: Snapshot, profile: AgentProfile) -> None:
        """Searches for the new message's words in the read that the step begins with anyway, unless its meaning has to be asked for, or
        messages have to be indexed first."""
        if not (seen.calls or seen.unread or self._embeddings(profile)) and self._wants_recall(seen, profile):
            if message_index.lags(conn, seen.session.ns, by=SHOWN_ANYWAY):
                return
            self._recalled = (
                _newest_question(seen),
                self._search(conn, seen, only_here=not profile.remembers, meaning=None),
            )

    async def _recall(self, seen: Snapshot, profile: AgentProfile) -> Sequence[FoundMessage]:
        """Returns lines found by a search for the new message's words, once for each message, so that the steps of a run share their
        prompts. After a refusal nothing is recalled.
        """
        if self._most is not None:
            return ()
        if self._wants_recall(seen, profile):
            # Indexes this namespace, after an import or a start, for INDEXING_SECONDS at most. The rest is indexed behind the conversations.
            ns = seen.session.ns
            end = asyncio.get_running_loop().time() + INDEXING_SECONDS
            lags = await self.app.database.read(message_index.lags, ns, by=SHOWN_ANYWAY)
            while lags and asyncio.get_running_loop().time() < end:
                lags = await self.app.database.write(message_index.index_some, ns=ns)
            embeddings, words = self._embeddings(profile), recall.words_of(seen.history, self._run_id)
            meaning = None if embeddings is None else await embeddings.of_query(words)
            found = await self.app.database.read(self._search, seen, only_here=not profile.remembers, meaning=meaning)
            self._recalled = (_newest_question(seen), found)
        return self._recalled[1] if self._recalled is not None and self._recalled[0] == _newest_question(seen) else ()

    def _search(
        self, conn: Connection, seen: Snapshot, *, only_here: bool, meaning: QueryVector | None
    ) -> Sequence[FoundMessage]:
        new, most = recall.searched_message(seen.history, self._run_id), self._shown_anyway(seen)
        if new is None:
            return ()
        above = [message.id for message in seen.history if message.run_id != self._run_id][-most:]
        without = seen.remembered.forgotten.union(above)
        return recall.search_past(
            conn,
            seen.session,
            new.content or "",
            run_id=self._run_id,
            without=without,
            now=new.created_at,
            timezone=self.app.timezone,
            only_here=only_here,
            meaning=meaning,
        )

    def _shown_anyway(self, seen: Snapshot) -> int:
        return SHOWN_IN_SMALL if window_of(self.app, wanted_model(seen)).is_small else SHOWN_ANYWAY

    def _wants_recall(self, seen: Snapshot, profile: AgentProfile) -> bool:
        """Returns whether this message has not been searched for yet, and something may be found that is not in the prompt anyway."""
        if self._most is not None or seen.run.kind is RunKind.FAREWELL:
            return False
        if self._recalled is not None and self._recalled[0] == _newest_question(seen):
            return False
        if seen.has_past and profile.remembers:
            return True
        window = window_of(self.app, wanted_model(seen))
        return seen.session.message_count > self._shown_anyway(seen) and not _is_all_above(seen, window)

    def _embeddings(self, profile: AgentProfile) -> Embeddings | None:
        """Returns what searches by meaning; None where this agent is given nothing from elsewhere, or no endpoint is configured."""
        found = self.app.embeddings
        return found if profile.remembers and found.model is not None else None

    def refused(self, error: ContextOverflow) -> None:
        """Makes the next request smaller: the endpoint counts more tokens than we estimated."""
        self._refused = error
        # Where the endpoint names a limit below our estimate, our count is about right and a quarter less will do; else we count far off.
        self._most = self.size * 3 // 4 if error.limit and error.limit < self.size else self.size // 2

    def left_out(self, answer: Answer) -> str:
        """Returns what to add to an answer when more was sent than could be read; empty if all was."""
        if not self._cut or answer.text.strip() in {"", NO_REPLY}:
            return ""
        shown, whole = (sum(numbers) for numbers in zip(*self._cut, strict=True))
        return f"\n\n{say('limits.read_in_part', shown=f'{shown:,}', whole=f'{whole:,}')}"

    async def _skills(self, ns: str) -> Sequence[str]:
        """Returns the saved skills. Looks into the folder in a thread only where there is one."""
        if self.app.files is not None:
            await self.app.files.bring_skills()
        folder = self.app.skills
        return await asyncio.to_thread(skill.listing, folder, ns) if folder.is_dir() else ()


def _is_all_above(seen: Snapshot, window: Window) -> bool:
    """Returns whether the whole session is surely in the prompt, so that nothing of it has to be searched for."""
    if len(seen.history) < seen.session.message_count or window.is_small:
        return False
    size = sum(len((message.content or "").encode("utf-8", "replace")) for message in seen.history)
    return size // 4 + TURN_TOKENS * len(seen.history) <= window.recent * 3 // 4


def _newest_question(seen: Snapshot) -> int:
    """Returns the id of the newest message of a person, whose words recall searches for."""
    return next((message.id for message in reversed(seen.history) if message.role is Role.USER), 0)


def wanted_model(seen: Snapshot) -> str | None:
    """Returns the model that is asked for; None: the configured one."""
    return seen.run.options.model or seen.session.chosen_model


def _person(seen: Snapshot) -> str:
    """Returns the name of the person whom the agent talks to, where that is one."""
    route = seen.run.route
    if route is None or route.address.kind is not ChatKind.DM:
        return ""
    named = (message.sender for message in reversed(seen.history) if message.role is Role.USER)
    return next(filter(None, named), "")
