"""The intake of chat platforms on a database, in this process, with short ways to say what happens."""

from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select, text

from gateway.chats.access import AccessRules
from gateway.chats.intake import Intake, IntakeOutcome, IntakeResult
from sessions import asks, outbox, people, runs
from sessions.db import Database
from sessions.db.schema import outbox as outbox_table
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Content, Inbound, InboundKind
from sessions.records import AskKind, OutRow, RunStatus
from sessions.runs import ModelAnswer, Opening
from tests.app import make_app
from tests.conftest import HandClock

DM, GROUP = ChatKind.DM, ChatKind.GROUP
TAP, EDIT, MOVED = InboundKind.TAP, InboundKind.EDIT, InboundKind.MOVED
DM_KEY, GROUP_KEY = "agent:main:telegram:dm", "agent:main:telegram:group:-100"
OPEN = AccessRules(allowed_users=frozenset({"7"}), first_allowed="7", allowed_chats=frozenset({"-100"}))
NAMES = {"7": "Ann", "8": "Bob", "66": "Eve"}
CARD = "May I?"
CARD_ID = "55"
CALL = {"id": "call_1", "type": "function", "function": {"name": "process", "arguments": "{}"}}


class IntakeHarness:
    """Short ways to say what happens. Each event has a new number unless it is a double."""

    def __init__(self, database: Database, clock: HandClock, rules: AccessRules = OPEN, **limits: int) -> None:
        self.database = database
        self.clock = clock
        database.write_now(people.decide_owner, "telegram", rules.owner, rules.first_allowed)
        self.outcomes: list[IntakeOutcome] = []
        self.number = 0
        self.app = make_app(Path("/nonexistent"), database, clock=clock, name="big", sections={"limits": limits})
        self.rules = rules
        self.intake = Intake(self.app)

    @property
    def rules(self) -> AccessRules:
        return self.app.access["telegram"]

    @rules.setter
    def rules(self, rules: AccessRules) -> None:
        self.app.access["telegram"] = rules

    async def comes(
        self,
        said: str,
        kind: ChatKind = DM,
        user: str = "7",
        *,
        chat: str = "",
        kind_of: InboundKind = InboundKind.MESSAGE,
        **more: Any,
    ) -> Inbound:
        self.number += 1
        event: dict[str, Any] = {
            "dedup_key": f"tg:1:{self.number}",
            "address": Address(platform=Platform.TELEGRAM, kind=kind, chat_id=chat or (user if kind is DM else "-100")),
            "sender": Sender(id=user, name=NAMES.get(user, user)),
            "message_id": str(self.number),
            "text": said,
            "kind": kind_of,
            **more,
        }
        inbound = Inbound(**event)
        await self.deliver(inbound)
        return inbound

    async def deliver(self, inbound: Inbound) -> IntakeResult:
        result = await self.intake.deliver(inbound)
        self.outcomes.append(result.outcome)
        return result

    def rows(self, sql: str) -> list[Any]:
        def read(conn: Connection) -> list[Any]:
            return [row[0] for row in conn.execute(text(sql))]

        return self.database.read_now(read)

    def _outgoing(self) -> list[OutRow]:
        def read(conn: Connection) -> list[OutRow]:
            return [
                OutRow.from_row(row)
                for row in conn.execute(select(outbox_table).order_by(outbox_table.c.id)).mappings()
            ]

        return self.database.read_now(read)

    def sent(self) -> list[str]:
        """What waits to be sent, oldest first, but for cards."""
        texts = [_text(row) for row in self._outgoing() if _closes(row) is None]
        return [text for text in texts if text != CARD]

    def closed(self) -> list[str]:
        """The questions whose cards are being closed."""
        return [str(ask) for row in self._outgoing() if (ask := _closes(row)) is not None]

    def keys(self) -> list[str]:
        return self.rows("SELECT session_key FROM runs WHERE kind <> 'farewell' ORDER BY created_at, id")

    def waits(self, key: str, kind: AskKind = AskKind.APPROVAL, card: str = CARD, *, delivered: bool = True) -> str:
        """The active run of this key now waits for a human, who has the card; returns the number of the question."""

        def park(conn: Connection) -> str:
            now = self.clock()
            run = runs.claim(conn, key, "worker", Opening(), now, lease_ms=1_000)
            assert run is not None
            runs.take_in_new_messages(conn, run, now)
            (call,) = runs.answered(conn, run, ModelAnswer(text="", tool_calls=[CALL]), now, step=0)
            options, body = ["red", "blue"], Content(text=card)
            assert runs.park(conn, run, call, "rm -rf *", now, options=options, kind=kind, args_hash="h", card=body)
            ask = asks.open_of(conn, run.id)
            assert ask is not None
            if delivered:
                outbox.mark_sent(conn, conn.scalar(text("SELECT max(id) FROM outbox")), CARD_ID, now)
            return str(ask.id)

        return self.database.write_now(park)

    def arrives(self, said: str | None = None, name: str = CARD_ID) -> None:
        """What was put into the outbox last, or says this, is in the chat now."""
        row = next(row for row in reversed(self._outgoing()) if said is None or _text(row) == said)
        self.database.write_now(outbox.mark_sent, row.id, name, self.clock())

    def answer(self, number: str) -> str | None:
        ask = self.database.read_now(asks.get, int(number))
        assert ask is not None
        return ask.answer

    def status(self, key: str) -> RunStatus | None:
        run = self.database.read_now(runs.active, key)
        return run.status if run else None


async def tap(intake: IntakeHarness, data: str, kind: ChatKind = DM, user: str = "7", *, twice: bool = False) -> None:
    intake.number += 1
    address = Address(platform=Platform.TELEGRAM, kind=kind, chat_id=user if kind is DM else "-100")
    sender = Sender(id=user, name=NAMES[user])
    key = f"tap:{intake.number}"
    inbound = Inbound(dedup_key=key, address=address, sender=sender, message_id="55", text=data, kind=TAP)
    await intake.deliver(inbound)
    if twice:
        await intake.deliver(inbound)


def _text(row: OutRow) -> str:
    return row.content.text if row.content else str((row.piece or {})["text"])


def _closes(row: OutRow) -> int | None:
    return row.closes
