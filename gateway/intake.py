"""The door for the chat platforms: who may, is it a command, which session; then one transaction, and only then the acknowledgement."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import structlog
from sqlalchemy import Connection

from gateway.access import Access, Paired, Rules, Verdict
from gateway.commands import Chat, Parsed, execute, parse
from gateway.commands.registry import find
from gateway.texts import say
from gateway.texts.times import when
from sessions import aliases, asks, inbox, outbox, overheard, people, runs
from sessions.clock import Clock, now_ms
from sessions.db import Database
from sessions.db.engine import Touch
from sessions.inbox import NewInbox
from sessions.keys import Address, ChatKind
from sessions.messages import Attachment, Inbound, InboundKind, Quote
from sessions.records import AskKind, Route, RunStatus
from sessions.runs import Accepted, Opening

log = structlog.get_logger(__name__)

_QUOTED = 300
_START = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    message_bytes: int = 262_144
    queue_per_chat: int = 100


Noted = Callable[[Inbound, str], Awaitable[None]]


async def _nothing(_: Inbound, __: str) -> None:
    pass


class Intake:
    """`deliver` is what adapters call. `noted` hears of messages that joined a run that was at work already, with the run's id."""

    def __init__(
        self,
        database: Database,
        rules: Callable[[str], Rules],
        *,
        bounds: Callable[[], Bounds] = Bounds,
        timezone: str = "UTC",
        default_model: str = "",
        noted: Noted = _nothing,
        accepted: Callable[[str], None] = lambda _: None,
        clock: Clock = now_ms,
    ) -> None:
        self._database = database
        self._rules = rules
        self._bounds = bounds
        self._timezone = timezone
        self._default_model = default_model
        self._noted = noted
        self._accepted = accepted
        self._clock = clock
        self._paired: Mapping[str, Paired] | None = None
        self._unlisten = database.listen(self._hear)

    def close(self) -> None:
        self._unlisten()

    def _hear(self, touched: frozenset[Touch]) -> None:
        if any(what == "people" for what, _ in touched):
            self._paired = None

    def forget_people(self) -> None:
        """Another process may have paired somebody."""
        self._paired = None

    async def access(self, platform: str) -> Access:
        paired = self._paired
        if paired is None:
            paired = self._paired = await self._database.read(_paired)
        return Access(self._rules(platform), paired.get(platform, Paired()))

    async def deliver(self, inbound: Inbound) -> None:
        """Returns once whatever has to be kept is on disk. Raises StateError when it could not be kept: do not acknowledge then."""
        access = await self.access(inbound.address.platform)
        verdict = access.judge(inbound)
        match inbound.kind:
            case InboundKind.MOVED:
                await self._database.write(_move, inbound)
                return
            case _ if verdict is Verdict.IGNORED:
                log.debug("message.refused", dedup_key=inbound.dedup_key)
                return
            case _ if verdict is Verdict.STRANGER:
                await self._database.write(self._stranger, inbound, access.rules.pair_strangers)
                return
            case _:
                pass
        joined = await self._database.write(self._take, inbound, access, verdict)
        self._accepted(inbound.address.platform)
        if joined is not None:
            await self._noted(inbound, joined)

    # --- one transaction each; they may run more than once ---

    def _take(self, conn: Connection, inbound: Inbound, access: Access, verdict: Verdict) -> str | None:
        """The run that was at work already and that the message joined."""
        key = str(access.key(_first_address(conn, inbound.address), inbound.sender))
        chat = self._chat(inbound, key)
        if verdict is Verdict.OVERHEARD or (not inbound.mentioned and _waits(conn, key)):
            self._overhear(conn, inbound, chat)
            return None
        if inbound.kind is InboundKind.TAP:
            self._tap(conn, inbound, chat, allowed=verdict is Verdict.ALLOWED)
            return None
        if inbound.kind is InboundKind.EDIT:
            self._edited(conn, inbound, chat)
            return None
        parsed = parse(inbound.text)
        if parsed is not None:
            self._command(conn, inbound, chat, parsed, allowed=verdict is Verdict.ALLOWED)
            return None
        return self._message(conn, inbound, chat)

    def _chat(self, inbound: Inbound, key: str) -> Chat:
        return Chat(
            session_key=key,
            now=self._clock(),
            user=inbound.sender.name or inbound.sender.id,
            route=Route(address=inbound.address, reply_to=inbound.message_id),
            opening=Opening(user_id=inbound.sender.id),
            timezone=self._timezone,
            default_model=self._default_model,
        )

    def _message(self, conn: Connection, inbound: Inbound, chat: Chat) -> str | None:
        if (refusal := self._refusal(conn, inbound, chat.session_key)) is not None:
            self._once(conn, inbound, chat, refusal)
            return None
        earlier = overheard.take(conn, chat.session_key) if inbound.address.kind is not ChatKind.DM else []
        spoken = [{"content": f"[{name}] {text}", "sender": name} for name, text in earlier]
        new = NewInbox(
            dedup_key=inbound.dedup_key,
            session_key=chat.session_key,
            messages=[*spoken, _body(inbound)],
            route=chat.route,
        )
        accepted: Accepted = runs.accept(conn, new, chat.opening, chat.now)
        event = "message.accepted" if accepted.fresh else "message.duplicate"
        log.info(event, session_key=chat.session_key, run_id=accepted.run_id, dedup_key=inbound.dedup_key)
        return accepted.run_id if accepted.fresh and accepted.joined else None

    def _refusal(self, conn: Connection, inbound: Inbound, session_key: str) -> str | None:
        bounds = self._bounds()
        size = len(inbound.text.encode("utf-8", "replace"))
        if size > bounds.message_bytes:
            return say("limits.too_long", size=f"{size // 1024} kB", limit=f"{bounds.message_bytes // 1024} kB")
        if not inbound.text and not inbound.attachments:
            return say("limits.kind_unknown")
        if (count := inbox.count_unread(conn, session_key)) >= bounds.queue_per_chat:
            return say("limits.queue_full", count=count)
        return None

    def _command(self, conn: Connection, inbound: Inbound, chat: Chat, parsed: Parsed, *, allowed: bool) -> None:
        if not inbox.command(conn, inbound.dedup_key, chat.session_key, chat.now):
            return
        command = find(parsed.name)
        if parsed.name == _START:
            answer = say("people.paired") if inbound.address.kind is ChatKind.DM else ""
        elif command is not None and command.for_allowed and not allowed:
            answer = say("people.not_allowed")
        else:
            answer = execute(conn, chat, parsed)
        self._reply(conn, inbound, chat, answer)

    def _once(self, conn: Connection, inbound: Inbound, chat: Chat, answer: str) -> None:
        if inbox.command(conn, inbound.dedup_key, chat.session_key, chat.now):
            self._reply(conn, inbound, chat, answer)

    def _reply(self, conn: Connection, inbound: Inbound, chat: Chat, answer: str) -> None:
        if answer and chat.route is not None:
            key = f"reply:{inbound.dedup_key}"
            outbox.put(conn, chat.route, {"text": answer}, chat.now, dedup_key=key, session_key=chat.session_key)

    def _overhear(self, conn: Connection, inbound: Inbound, chat: Chat) -> None:
        if (
            inbound.kind is InboundKind.MESSAGE
            and inbound.text
            and inbox.command(conn, inbound.dedup_key, chat.session_key, chat.now)
        ):
            overheard.hear(conn, chat.session_key, inbound.message_id, chat.user, inbound.text, chat.now)

    def _edited(self, conn: Connection, inbound: Inbound, chat: Chat) -> None:
        """Unread: as if it had been written so. Being worked on: told to the agent. Answered: said so, in a DM."""
        content = str(_body(inbound)["content"])
        if inbox.amend(conn, chat.session_key, inbound.message_id, content):
            return
        active = runs.active(conn, chat.session_key)
        if active is not None and active.status is RunStatus.RUNNING:
            body = {
                **_body(inbound),
                "content": f"{content}\n(this replaces an earlier message of mine, which I edited)",
            }
            new = NewInbox(dedup_key=inbound.dedup_key, session_key=chat.session_key, messages=[body], route=chat.route)
            runs.accept(conn, new, chat.opening, chat.now)
        elif inbound.address.kind is ChatKind.DM:
            self._once(conn, inbound, chat, say("limits.edited_late"))

    def _tap(self, conn: Connection, inbound: Inbound, chat: Chat, *, allowed: bool) -> None:
        """A decision, once: the buttons go, who and when stays."""
        _, _, rest = inbound.text.partition(":")
        number, _, choice = rest.partition(":")
        ask = asks.get(conn, int(number)) if number.isdecimal() else None
        if ask is None or not inbox.command(conn, inbound.dedup_key, chat.session_key, chat.now):
            return
        if ask.kind is AskKind.APPROVAL and not allowed:
            self._reply(conn, inbound, chat, say("people.not_allowed"))
            return
        if ask.answered_at is not None:
            moment = when(ask.answered_at, chat.now, chat.timezone)
            self._reply(conn, inbound, chat, say("ask.already", who=ask.answered_by or "", when=moment))
            return
        answer = _choice(ask.options, choice)
        if runs.answer(conn, ask.run_id, answer, chat.user, chat.now, ask_id=ask.id):
            self._close_card(conn, inbound, chat, ask.kind, ask.question, answer)

    def _close_card(
        self, conn: Connection, inbound: Inbound, chat: Chat, kind: AskKind, question: str, answer: str
    ) -> None:
        moment = when(chat.now, chat.now, chat.timezone)
        match kind, answer:
            case AskKind.APPROVAL, "yes":
                line = say("ask.approved_by", who=chat.user, when=moment)
            case AskKind.APPROVAL, _:
                line = say("ask.denied_by", who=chat.user, when=moment)
            case AskKind.QUESTION, _:
                line = say("ask.answered", who=chat.user, answer=answer)
        body = {"text": f"{question}\n\n{line}", "edits": inbound.message_id}
        if chat.route is not None:
            key = f"card:{inbound.dedup_key}"
            outbox.put(conn, chat.route, body, chat.now, dedup_key=key, session_key=chat.session_key)

    def _stranger(self, conn: Connection, inbound: Inbound, pair: bool) -> None:
        """One code, an hour long; otherwise silence. Nothing of what strangers say is kept."""
        now = self._clock()
        platform, sender = inbound.address.platform, inbound.sender
        name = sender.name[:64]
        parsed = parse(inbound.text)
        route = Route(address=inbound.address)
        if parsed is not None and parsed.name == _START and parsed.argument:
            owner = people.redeem_owner_code(conn, platform, parsed.argument[:16], sender.id, name, now)
            if owner is not None:
                text = say("people.owner", name=name)
                outbox.put(conn, route, {"text": text}, now, dedup_key=f"reply:{inbound.dedup_key}", session_key="")
                return
        if not pair or inbound.kind is not InboundKind.MESSAGE:
            return
        code = people.ask_in(conn, platform, sender.id, name, inbound.address, now)
        if code is not None:
            text = say("people.pairing", code=code, owner=say("people.the_owner"))
            outbox.put(conn, route, {"text": text}, now, dedup_key=f"reply:{inbound.dedup_key}", session_key="")
            log.info("pair.requested", platform=platform, user_id=sender.id)


def _paired(conn: Connection) -> dict[str, Paired]:
    found: dict[str, Paired] = {}
    for person in people.everybody(conn):
        known = found.get(person.platform, Paired())
        owner = person.user_id if person.owner else known.owner
        found[person.platform] = Paired(users=known.users | {person.user_id}, owner=owner)
    return found


def _move(conn: Connection, inbound: Inbound) -> None:
    aliases.join(conn, inbound.address.platform, inbound.text, inbound.address.chat_id)


def _first_address(conn: Connection, address: Address) -> Address:
    """The chat under the id that its key was made of."""
    return replace(address, chat_id=aliases.resolve(conn, address.platform, address.chat_id))


def _waits(conn: Connection, session_key: str) -> bool:
    """In a group, only a mention or a reply answers a question."""
    active = runs.active(conn, session_key)
    return active is not None and active.status is RunStatus.WAITING


def _choice(options: tuple[str, ...], choice: str) -> str:
    if choice in {"y", "n"}:
        return "yes" if choice == "y" else "no"
    return options[int(choice)] if choice.isdecimal() and int(choice) < len(options) else choice


def _body(inbound: Inbound) -> dict[str, object]:
    """The message as it goes into the journal."""
    text = _with_quote(inbound.text, inbound.quote)
    in_dm = inbound.address.kind is ChatKind.DM
    name = inbound.sender.name or inbound.sender.id
    body: dict[str, object] = {"content": text if in_dm else f"[{name}] {text}", "sender": name}
    if inbound.attachments:
        body["attachments"] = [_attachment(inbound, attachment) for attachment in inbound.attachments]
    return body


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
