"""How well what was said is found again: LoCoMo's questions (`--locomo PATH`), and 60 facts in 3,000 messages of ordinary chat.

The search, the recall and the prompt are those of the gateway. What a fold would extract is given: LoCoMo's own annotations there, written
by hand here; so this measures how things are found, and no model's judgement.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import Connection

from bench import everyday
from bench.facts import FACTS, Fact, QuestionKind, ordinary_chat
from bench.locomo import LocomoConversation, conversations
from bench.table import ResultTable
from gateway.agent import prompt
from gateway.agent.memory import recall
from gateway.agent.memory.embeddings import embedded_text
from gateway.agent.models.embedder import Embedder
from gateway.agent.models.endpoint import ModelSettings
from gateway.agent.prompt import Material
from gateway.agent.system_prompt import gateway_blocks
from gateway.agent.tokens import Tokens
from gateway.agent.tools import BUILT
from gateway.agent.tools.registry import Toolbox
from gateway.agent.window import Window
from gateway.config.model import AgentSection
from sessions import memory, store
from sessions.db import Database, open_database
from sessions.keys import SessionKey
from sessions.memory import FoldMaterial, NewObservation, vectors
from sessions.memory.vectors import QueryVector
from sessions.records import EndReason, Message, Role, Session
from sessions.search import message_index
from sessions.search.query import SearchScope, any_of_its_words

HITS, SESSIONS, FIRST = 10, 3, 3
AIMS = {QuestionKind.RARE: 20, QuestionKind.COMMON: 18, QuestionKind.PARAPHRASE: 15}
EVERYDAY = 36
START = 1_750_000_000_000


@dataclass
class IndexedConversation:
    """One conversation in a store: its key, and the id of each message."""

    database: Database
    key: str
    ids: dict[str, int]

    def index(self) -> None:
        while self.database.write_now(message_index.index_some):
            pass

    def observe(self, notes: Sequence[NewObservation], session_id: str) -> None:
        """As a fold commits them."""

        def write(conn: Connection) -> None:
            session = store.get(conn, session_id)
            state = memory.state(conn, session.ns)
            past = memory.folded_to(conn, session_id)
            said = store.read_messages(conn, session_id)
            folded = FoldMaterial(
                session=session,
                rev=state.rev,
                folded_to=past,
                up_to=said[-1].id,
                digest="",
                fails=0,
                messages=said,
                candidates=(),
            )
            assert memory.commit(conn, folded, notes, None, said[-1].created_at) is not None

        self.database.write_now(write)


def put(
    database: Database, key: str, sessions: Sequence[Sequence[tuple[str, str | None, Role, str, int]]]
) -> IndexedConversation:
    """Every session but the last is ended. A message: its name, who said it, the role, the text, the time."""
    place = IndexedConversation(database, key, {})

    def write(conn: Connection, some: Sequence[tuple[str, str | None, Role, str, int]], *, last: bool) -> str:
        session = store.start(conn, SessionKey.parse(key), some[0][4], source="telegram")
        for name, sender, role, text, at in some:
            [place.ids[name]] = store.append(conn, session.id, [Message(role=role, content=text, sender=sender)], at)
        if not last:
            store.end(conn, session.id, EndReason.IDLE, some[-1][4])
        return session.id

    for number, some in enumerate(sessions):
        database.write_now(write, some, last=number == len(sessions) - 1)
    place.index()
    return place


def asked_prompt(
    conn: Connection, key: str, question: str, window: Window, now: int | None = None
) -> tuple[str, set[int]]:
    """The system prompt, and the ids of the messages that are in the prompt when this is asked. `now`: None: a minute after the last message."""
    material, candidates = _material(conn, key, question, now)
    messages = prompt.build(material, Tokens(), window=window).request.messages
    shown = {each.id for each in candidates if _holds(messages[1:], each)}
    return str(messages[0]["content"]), shown


def asked_messages(conn: Connection, key: str, question: str, window: Window) -> Sequence[dict[str, object]]:
    """The whole prompt when this is asked."""
    return prompt.build(_material(conn, key, question)[0], Tokens(), window=window).request.messages


def _material(conn: Connection, key: str, question: str, now: int | None = None) -> tuple[Material, Sequence[Message]]:
    session = store.active(conn, key)
    assert session is not None
    earlier = store.last_messages(conn, session.id, 160)
    now = now or earlier[-1].created_at + 60_000
    history = [*earlier, _new(session, question, now)]
    above = frozenset(message.id for message in history[-3:])
    recalled = recall.search_past(conn, session, question, run_id="now", without=above, now=now, timezone="UTC")
    state = memory.state(conn, session.ns)
    material = Material(
        system_prompt=AgentSection().system_prompt,
        gateway_blocks=lambda tools: gateway_blocks(session.source, key, person="Ann", tools=tools),
        tools=Toolbox.of(BUILT).schemas,
        history=history,
        message_count=session.message_count + 1,
        run_id="now",
        notes=memory.lines(conn, session.ns),
        digest=state.digest,
        folded_to=memory.folded_to(conn, session.id),
        recalled=recalled,
    )
    return material, (*history[:-1], *recalled)


def _new(session: Session, question: str, now: int) -> Message:
    fields = dict.fromkeys(set(Message.__slots__) - {"derived"})
    known = {
        "id": 2**53,
        "session_id": session.id,
        "run_id": "now",
        "role": Role.USER,
        "content": question,
        "created_at": now,
    }
    return Message(**{**fields, **known, "attachments": (), "state": "done"})  # type: ignore[arg-type]


def _holds(messages: Sequence[dict[str, object]], wanted: Message) -> bool:
    plain = " ".join((wanted.content or "").split())[:400]
    return any(plain in " ".join(str(message["content"]).split()) for message in messages)


def find(
    conn: Connection, key: str, question: str, limit: int, meaning: QueryVector | None = None
) -> Sequence[message_index.Hit]:
    """As recall searches for what somebody wrote: quotation marks in a question are no operators."""
    query = any_of_its_words(question, recall.TERMS)
    assert query is not None
    near = vectors.nearest(conn, str(SessionKey.parse(key).namespace), meaning)
    return message_index.best(conn, query, SearchScope(ns=key), limit=limit, also=near)


# --- LoCoMo -----------------------------------------------------------------------------------------------------------------------


@dataclass
class Score:
    asked: int = 0
    hit: int = 0
    session: int = 0
    in_prompt: dict[int, tuple[int, int, int]] = field(default_factory=dict[int, tuple[int, int, int]])
    """By the window: in notes or messages, in notes, in messages."""


IN_PROMPT = {4_096: 75, 8_192: 82, 16_384: 86, 32_768: 88}
"""The aims for the share of questions with evidence in the prompt, by the size of the window."""


def locomo(path: Path, folder: Path, windows: Sequence[int]) -> ResultTable:
    score, took = Score(), list[float]()
    for number, conversation in enumerate(conversations(path)):
        home = folder / str(number)
        home.mkdir()
        database = open_database(home)
        _ask(_put(database, conversation), conversation, windows, score, took)
        database.close()
    table = ResultTable(f"LoCoMo: {score.asked:,} questions with evidence; observations are its own annotations")
    for name, found, aim in (
        (f"any evidence in the first {HITS} hits", score.hit, 83),
        (f"its session among the first {SESSIONS}, ranked by first hit", score.session, 86),
    ):
        table.row(name, f"{100 * found / score.asked:.1f} %", "", None, f">= {aim} %")
    for window in windows:
        whole, *parts = (f"{100 * n / score.asked:.1f} %" for n in score.in_prompt[window])
        aim = f">= {IN_PROMPT.get(window, 89)} %"
        table.row(f"evidence in a prompt for a window of {window:,}", whole, "", None, aim)
        table.row("  in the notes, in messages", " / ".join(parts), "", None, "")
    table.row(
        "time of a query, p50 and worst",
        f"{statistics.median(took) * 1e3:.1f} / {max(took) * 1e3:.0f} ms",
        "",
        None,
        "",
    )
    return table


def _put(database: Database, conversation: LocomoConversation) -> IndexedConversation:
    first = conversation.sessions[0][0].speaker
    sessions = [
        [(m.id, m.speaker, Role.USER if m.speaker == first else Role.ASSISTANT, m.text, m.at) for m in some]
        for some in conversation.sessions
    ]
    place = put(database, "agent:main:telegram:dm:1", sessions)
    by_session: dict[str, list[NewObservation]] = {}
    for text, sources in conversation.observations:
        known = [place.ids[source] for source in sources if source in place.ids]
        if known:
            of = database.read_now(store.messages_of, known[:1])[0].session_id
            by_session.setdefault(of, []).append(NewObservation(kind="fact", text=text, src=tuple(known)))
    for session_id, notes in by_session.items():
        place.observe(notes, session_id)
    return place


def _ask(
    place: IndexedConversation,
    conversation: LocomoConversation,
    windows: Sequence[int],
    score: Score,
    took: list[float],
) -> None:
    texts = {text: {place.ids[s] for s in sources if s in place.ids} for text, sources in conversation.observations}
    for question in conversation.questions:
        evidence = {place.ids[one] for one in question.evidence if one in place.ids}
        if not evidence:
            continue
        began = time.perf_counter()
        hits = place.database.read_now(find, place.key, question.text, 50)
        took.append(time.perf_counter() - began)
        of_evidence = {m.session_id for m in place.database.read_now(store.messages_of, evidence)}
        ranked = list(dict.fromkeys(hit.session.id for hit in hits))[:SESSIONS]
        score.asked += 1
        score.hit += bool(evidence & {hit.message.id for hit in hits[:HITS]})
        score.session += bool(of_evidence & set(ranked))
        for size in windows:
            system, shown = place.database.read_now(asked_prompt, place.key, question.text, Window(size=size))
            noted = any(text in system for text, sources in texts.items() if sources & evidence)
            said = bool(evidence & shown)
            whole, notes, told = score.in_prompt.get(size, (0, 0, 0))
            score.in_prompt[size] = (whole + (noted or said), notes + noted, told + said)


# --- everyday talk ----------------------------------------------------------------------------------------------------------------


def put_everyday(database: Database) -> IndexedConversation:
    """Ten days in a group, a session each; nothing of it is in notes."""
    sessions = [
        [
            (
                line.id,
                *((None, Role.ASSISTANT) if line.name == everyday.AGENT else (line.name, Role.USER)),
                line.text,
                line.at,
            )
            for line in day
        ]
        for day in everyday.days()
    ]
    return put(database, "agent:main:telegram:group:-1", sessions)


def everyday_missed(place: IndexedConversation, window: Window) -> list[str]:
    """Returns the questions without their evidence in the prompt."""
    now = int(everyday.ASKED_AT.timestamp() * 1000)
    return [
        question
        for question, mark in everyday.QUESTIONS
        if place.ids[mark] not in place.database.read_now(asked_prompt, place.key, question, window, now)[1]
    ]


def everyday_talk(folder: Path, windows: Sequence[int]) -> ResultTable:
    home = folder / "everyday"
    home.mkdir()
    table = ResultTable(
        f"{len(everyday.QUESTIONS)} questions about ten days of everyday talk, no notes: evidence in the prompt"
    )
    with closing(open_database(home)) as database:
        place = put_everyday(database)
        for size in windows:
            missed = everyday_missed(place, Window(size=size))
            found = f"{len(everyday.QUESTIONS) - len(missed)} of {len(everyday.QUESTIONS)}"
            table.row(f"window of {size:,}", found, "", None, f">= {EVERYDAY}")
            for question in missed:
                table.row(f"  missed: {question}", "", "", None, "")
    return table


# --- ordinary chat ------------------------------------------------------------------------------------------------------------------


Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]


def facts_found(
    database: Database, messages: int, facts: Sequence[Fact] = FACTS, *, embed: Embed | None = None
) -> dict[QuestionKind, int]:
    """How many of the facts are found in the first three hits, by the way in which they are asked for. `embed`: also by meaning."""
    key = "agent:main:telegram:dm:1"
    chat = ordinary_chat(messages, facts)
    place = put(
        database,
        key,
        [
            [
                (
                    str(i),
                    "Ann" if i % 2 == 0 else None,
                    Role.ASSISTANT if i % 2 else Role.USER,
                    text,
                    START + i * 60_000,
                )
                for i, text in enumerate(chat)
            ]
        ],
    )
    session = database.read_now(store.active, key)
    assert session is not None
    where = {fact: place.ids[str(chat.index(fact.said))] for fact in facts}
    notes = [NewObservation(kind="fact", text=fact.note, src=(where[fact],), asked_as=fact.asked_as) for fact in facts]
    place.observe(notes, session.id)
    found = dict.fromkeys(QuestionKind, 0)
    if embed is not None:
        _embed_notes(database, embed)
    for fact in facts:
        meaning = None if embed is None else QueryVector(model="bench", vector=embed([fact.question])[0])
        hits = database.read_now(find, key, fact.question, FIRST, meaning)
        found[fact.way] += where[fact] in {hit.message.id for hit in hits}
    return found


def _embed_notes(database: Database, embed: Embed) -> None:
    """As it is done behind the conversations."""
    notes = database.read_now(vectors.missing, "bench", 1_000)
    for note, vector in zip(notes, embed([embedded_text(note) for note in notes]), strict=True):
        database.write_now(vectors.put, note.ns, "bench", {note.id: vectors.packed(vector)})


def ordinary(folder: Path, *, embed: Embed | None = None, asked_as: bool = True) -> ResultTable:
    home = folder / f"facts-{embed is None}-{asked_as}"
    home.mkdir()
    database = open_database(home)
    facts = FACTS if asked_as else [replace(fact, asked_as=()) for fact in FACTS]
    found = facts_found(database, 3_000, facts, embed=embed)
    database.close()
    how = f"{'with' if asked_as else 'without'} asked_as, {'by words' if embed is None else 'by words and meaning'}"
    table = ResultTable(
        f"60 facts in 3,000 messages of ordinary chat, notes written by hand; found in the first three hits, {how}"
    )
    for way, number in found.items():
        table.row(
            f"asked with {way.value}",
            f"{number} of {sum(fact.way is way for fact in FACTS)}",
            "",
            None,
            f">= {AIMS[way]}",
        )
    return table


def endpoint(base_url: str, model: str) -> Embed:
    """As the gateway asks it."""

    async def ask(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        async with aclosing(Embedder(ModelSettings(base_url=base_url, name=model))) as embedder:
            return await embedder.embed(texts)

    return lambda texts: asyncio.run(ask(texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locomo", type=Path, help="locomo10.json")
    parser.add_argument(
        "--window", type=int, action="append", help="of the model, in tokens; may be given several times"
    )
    parser.add_argument(
        "--embeddings", help="base_url of an endpoint for embeddings: the facts are also looked for by meaning"
    )
    parser.add_argument("--model", default="model", help="the model that embeds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        windows = options.window or [128_000]
        print(ordinary(Path(folder)))
        print(everyday_talk(Path(folder), options.window or [4_096, 8_192]))
        if options.embeddings is not None:
            embed = endpoint(options.embeddings, options.model)
            print(ordinary(Path(folder), asked_as=False))
            print(ordinary(Path(folder), embed=embed, asked_as=False))
            print(ordinary(Path(folder), embed=embed))
        if options.locomo is not None:
            print(locomo(options.locomo, Path(folder), windows))


if __name__ == "__main__":
    main()
