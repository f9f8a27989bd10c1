"""Builds the requests of one run, and a smaller one after the endpoint refused one for its length."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from gateway.agent import prompt
from gateway.agent.memory import recall
from gateway.agent.memory.embeddings import Embeddings
from gateway.agent.models.interface import Answer, ContextOverflow, ModelRequest
from gateway.agent.prompt import Built, Material
from gateway.agent.system_prompt import gateway_blocks
from gateway.agent.tools import skill
from gateway.agent.tools.registry import Toolbox
from gateway.agent.window import Window
from gateway.runs.memory_views import Remembered
from gateway.runs.message_parts import parts_to_show
from gateway.runs.replies import NO_REPLY
from gateway.runs.services import AgentProfile, Services
from gateway.runs.snapshot import Snapshot
from gateway.texts import say
from sessions.db.search import FoundMessage
from sessions.keys import ChatKind
from sessions.memory.vectors import QueryVector
from sessions.records import Role, RunKind, Source

_EXACT = frozenset({Source.API, Source.THREAD})
"""Sessions of programs: what they send is never cut."""
TURN_TOKENS = 24  # at most, beside the text of a message
SHOWN_ANYWAY = 8
"""So many of the newest messages are in the prompt, or very long; they are not searched for."""


class Requests:
    def __init__(self, services: Services, run_id: str) -> None:
        self._services = services
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
        wanted = wanted_model(seen, profile)
        await self._services.model().learn_window(wanted)  # before anything is measured against it
        exact = seen.session.source in _EXACT
        remembered = seen.remembered if profile.remembers else Remembered()
        shown = await parts_to_show(seen.history, self._run_id, every=exact, workspaces=self._services.workspaces)
        material = Material(
            system_prompt=profile.system_prompt,
            gateway_blocks=lambda tools: gateway_blocks(seen.session, _person(seen), tools),
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
            timezone=self._services.timezone,
            parts=lambda message: shown.get(message.id, ()),
            exact=exact,
        )
        window = replace(self._services.window(wanted), most=self._most)
        built = prompt.build(
            material,
            self._services.tokens,
            window=window,
            model=wanted,
            wanted_output=options.max_output_tokens,
        )
        self._note(built)
        return replace(
            built.request,
            response_format=options.response_format,
            callers_tools=options.tool_names,
            sampling=options.sampling,
            exact=exact and any(shown.get(each.id) for each in seen.history if each.run_id == self._run_id),
        )

    def search_past(self, conn: Connection, seen: Snapshot, profile: AgentProfile) -> None:
        """Searches for the new message's words in the read that the step begins with anyway, unless its meaning has to be asked for first."""
        if not (seen.calls or seen.unread or self._embeddings(profile)) and self._wants_recall(seen, profile):
            self._recalled = (
                _searched_message(seen),
                _search_past(conn, seen, only_here=not profile.remembers, meaning=None),
            )

    async def _recall(self, seen: Snapshot, profile: AgentProfile) -> Sequence[FoundMessage]:
        """Returns lines found by a search for the new message's words, once for each message, so that the steps of a run share their
        prompts. After a refusal nothing is recalled.
        """
        if self._most is not None:
            return ()
        if self._wants_recall(seen, profile):
            embeddings, words = self._embeddings(profile), recall.words_of(seen.history, self._run_id)
            meaning = None if embeddings is None else await embeddings.of_query(words)
            found = await self._services.database.read(
                _search_past, seen, only_here=not profile.remembers, meaning=meaning
            )
            self._recalled = (_searched_message(seen), found)
        return self._recalled[1] if self._recalled is not None and self._recalled[0] == _searched_message(seen) else ()

    def _wants_recall(self, seen: Snapshot, profile: AgentProfile) -> bool:
        """Returns whether this message has not been searched for yet, and something may be found that is not in the prompt anyway."""
        if self._most is not None or seen.run.kind is RunKind.FAREWELL:
            return False
        if self._recalled is not None and self._recalled[0] == _searched_message(seen):
            return False
        if seen.has_past and profile.remembers:
            return True
        window = self._services.window(wanted_model(seen, profile))
        return seen.session.message_count > SHOWN_ANYWAY and not _is_all_above(seen, window)

    def _embeddings(self, profile: AgentProfile) -> Embeddings | None:
        """Returns what searches by meaning; None where this agent is given nothing from elsewhere, or no endpoint is configured."""
        found = self._services.embeddings
        return found if profile.remembers and found is not None and found.model is not None else None

    def _note(self, built: Built) -> None:
        if self._refused is not None and built.size >= self.size:  # nothing more can be left out, so no try will fit
            raise self._refused.for_good()
        self.core, self.size, self._cut, self._refused = built.core, built.size, built.cut, None

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
        folder = self._services.skills
        return await asyncio.to_thread(skill.listing, folder, ns) if folder.is_dir() else ()


def _is_all_above(seen: Snapshot, window: Window) -> bool:
    """Returns whether the whole session is surely in the prompt, so that nothing of it has to be searched for."""
    if len(seen.history) < seen.session.message_count or window.is_small:
        return False
    size = sum(len((message.content or "").encode("utf-8", "replace")) for message in seen.history)
    return size // 4 + TURN_TOKENS * len(seen.history) <= window.recent * 3 // 4


def _searched_message(seen: Snapshot) -> int:
    """Returns the id of the message that is searched for."""
    return next((message.id for message in reversed(seen.history) if message.role is Role.USER), 0)


def wanted_model(seen: Snapshot, profile: AgentProfile) -> str | None:
    return seen.run.options.model or seen.session.chosen_model or profile.model


def _search_past(
    conn: Connection, seen: Snapshot, *, only_here: bool, meaning: QueryVector | None
) -> Sequence[FoundMessage]:
    text = recall.words_of(seen.history, seen.run.id)
    without = seen.remembered.forgotten.union(message.id for message in seen.history[-SHOWN_ANYWAY:])
    return recall.search_past(
        conn, seen.session, text, run_id=seen.run.id, without=without, only_here=only_here, meaning=meaning
    )


def _person(seen: Snapshot) -> str:
    """Returns the name of the person whom the agent talks to, where that is one."""
    route = seen.run.route
    if route is None or route.address.kind is not ChatKind.DM:
        return ""
    named = (message.sender for message in reversed(seen.history) if message.role is Role.USER)
    return next(filter(None, named), "")
