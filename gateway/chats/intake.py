"""Takes in the events of the chat platforms: permission, command, answer or message; in one transaction, before they are acknowledged.
Edits that change no word are left out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlalchemy import Connection

from adapters.registry import title_of
from gateway.chats.access import (
    START,
    AccessDecision,
    AccessRules,
    ChatAccess,
    Paired,
    access_rules,
    answer_stranger,
    redeem_owner_code,
)
from gateway.chats.approvals import decide, notify_held_up, waiting_for
from gateway.chats.chat_changes import CHANGES, ChatChanges, first_known
from gateway.commands import ChatContext, Parsed, execute, find, parse
from gateway.context import App
from gateway.observe.logging import get_logger
from gateway.texts import say
from gateway.texts.quoting import BLANK_LETTERS, as_quoted, escape_speaker_marks
from sessions import asks, inbox, outbox, overheard, people, runs
from sessions.db.sql import lock
from sessions.keys import Address, ChatKind, DmScope
from sessions.messages import Content, Inbound, InboundKind, Quote
from sessions.records import Ask, AskKind, InboxRow, Message, Route, RunStatus
from sessions.runs import Accepted
from sessions.topics import Topic

_MessageId = tuple[str, str, str]


class EditFilter:
    """Remembers the texts of the last `kept` messages, in memory only: after a restart such an edit counts as a real one."""

    def __init__(self, kept: int = 4_096) -> None:
        self._kept = kept
        self._known: dict[_MessageId, int] = {}

    def note(self, inbound: Inbound) -> None:
        """Remembers the text of a message. Called after it was committed."""
        message = _message_id(inbound)
        if inbound.kind is InboundKind.EDIT:
            self._known.pop(message, None)
        elif inbound.kind is not InboundKind.MESSAGE or message in self._known:  # sent again, maybe after an edit
            return
        self._known[message] = _wording(inbound)
        if len(self._known) > self._kept:
            del self._known[next(iter(self._known))]

    def is_unchanged(self, inbound: Inbound) -> bool:
        """Returns True for an edit whose words are known already."""
        return inbound.kind is InboundKind.EDIT and self._known.get(_message_id(inbound)) == _wording(inbound)


def _message_id(inbound: Inbound) -> _MessageId:
    return inbound.address.platform, inbound.address.chat_id, inbound.message_id


def _wording(inbound: Inbound) -> int:
    """The words of a message, without references to files, which change from time to time."""
    files = tuple((file.kind, file.name, file.size) for file in inbound.attachments)
    # The hash alone: 4,096 texts of a group would be megabytes, and a wrong match only leaves out one edit.
    return hash((inbound.text, inbound.mentioned, files))


class IntakeOutcome(StrEnum):
    """What became of an event."""

    IGNORED = "ignored"  # its sender has no access, it was taken in before, or it changes nothing
    OVERHEARD = "overheard"  # it is not meant for the bot, and kept as context
    REFUSED = "refused"  # it is too long or of an unknown kind, or too many wait already; its sender is told
    STRANGER = "stranger"  # its sender may be paired
    CHAT_CHANGED = "chat_changed"  # it says something of the chat: an id, a message taken back, that we joined
    TAKEN = "taken"  # a message, a command, a tap, an edit
    JOINED = "joined"  # a run is at work: the message joins it, or waits for its end when it is from another thread


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeResult:
    """`run_id`: the run at work that the message joins or waits for. `told`: what whoever tapped a button is told, alone."""

    outcome: IntakeOutcome
    run_id: str | None = None
    told: str = ""


log = get_logger(__name__)

_MINUTE_MS = 60_000
MORE_MS = 1_000
"""So far apart the files of an album, or the parts of a long text, may come and still be looked at together."""


class Intake:
    """Takes in the events of all platforms."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._edits = EditFilter()
        self._paired: Mapping[str, Paired] | None = None
        self._changes = ChatChanges(app.database, app.clock)
        self._unlisten = app.database.listen(lambda _: self.forget_people(), Topic.PEOPLE)

    def close(self) -> None:
        self._unlisten()

    def _rules(self, platform: str) -> AccessRules:
        known = self.app.access  # before the configuration: a reload puts an empty one in its place
        if platform not in known:
            known[platform] = access_rules(self.app.config, platform)
        return known[platform]

    def forget_people(self) -> None:
        """Reads paired people again at the next event: another process may have approved somebody."""
        self._paired = None

    async def access(self, platform: str) -> ChatAccess:
        paired = self._paired
        if paired is None:
            paired = self._paired = await self.app.database.read(_paired)
        return ChatAccess(self._rules(platform), paired.get(platform, Paired()))

    async def settle_owners(self, platforms: Collection[str]) -> None:
        """Stores who the owner on each of these platforms is, where that is not known yet or configured anew."""
        await self.app.database.write(self._settle_owners, platforms)

    def _settle_owners(self, conn: Connection, platforms: Collection[str]) -> None:
        for platform in platforms:
            rules = self._rules(platform)
            alone = rules.dm_scope is not DmScope.SHARED
            people.decide_owner(conn, platform, rules.owner, rules.first_allowed, from_history=alone)

    async def deliver(self, inbound: Inbound) -> IntakeResult:
        """Returns what became of the event, when everything that must be kept is committed. Raises StateError when it could not
        be: do not acknowledge then."""
        inbound = _addressed(printable(inbound))
        access = await self.access(inbound.address.platform)
        # What needs reads only is done before the transaction, which holds up every other writer.
        if inbound.same_as:
            await self._changes.join(inbound)
        if inbound.in_thread and not inbound.mentioned and not inbound.mentions_other:
            inbound = replace(inbound, mentioned=await self.app.database.read(_answered_in_thread, inbound, access))
        verdict = access.judge(inbound)
        # Under the present ids first, which is right nearly always and costs no read.
        if verdict in {AccessDecision.IGNORED, AccessDecision.STRANGER}:
            verdict = access.judge(await self.app.database.read(first_known, inbound))
        if verdict is AccessDecision.STRANGER and inbound.same_as:
            verdict = access.judge(replace(inbound, sender=replace(inbound.sender, id=inbound.same_as)))
        if inbound.kind in CHANGES:
            has_access = verdict not in {AccessDecision.IGNORED, AccessDecision.STRANGER}
            await self._changes.take(inbound, access, has_access=has_access)
            return IntakeResult(outcome=IntakeOutcome.CHAT_CHANGED)
        if verdict is AccessDecision.IGNORED:
            log.debug("message.refused", dedup_key=inbound.dedup_key)
            told = say("people.not_allowed") if inbound.tap_id and access.rules.pair_strangers else ""
            return IntakeResult(outcome=IntakeOutcome.IGNORED, told=told)
        if verdict is AccessDecision.STRANGER:
            await self.app.database.write(self._stranger, inbound, access.rules.pair_strangers)
            return IntakeResult(outcome=IntakeOutcome.STRANGER)
        if inbound.kind is InboundKind.JOINED:
            await self.app.database.write(self._hello, inbound, access)
            return IntakeResult(outcome=IntakeOutcome.CHAT_CHANGED)
        if self._edits.is_unchanged(inbound):
            return IntakeResult(outcome=IntakeOutcome.IGNORED)
        result = await self.app.database.write(self._take, inbound, access, verdict)
        # Noted after the commit only: an event that was not stored comes again, and must not count as a repetition.
        self._edits.note(inbound)
        return result

    # --- one transaction each; they may run more than once ---

    def _hello(self, conn: Connection, inbound: Inbound, access: ChatAccess) -> None:
        """Says one line when we come into a group for the first time."""
        first = first_known(conn, inbound)
        key = str(access.key(first.address, first.sender))
        lines = [say("people.group_hello")]
        if inbound.in_thread and not access.rules.thread_sessions:
            lines.append(say("people.group_threads"))
        if inbound.in_thread and access.rules.pair_strangers:
            lines.append(say("people.group_code"))
        hello = Content(text="\n".join(lines))
        route = Route(address=inbound.address)
        outbox.put(conn, route, hello, self.app.clock(), dedup_key=_hello_key(first.address), session_key=key)

    def _take(self, conn: Connection, inbound: Inbound, access: ChatAccess, verdict: AccessDecision) -> IntakeResult:
        """Takes one event in."""
        first = first_known(conn, inbound)
        # By the first id of two that are one person's, unless the configuration names the other: else they would be counted twice.
        sender = inbound.sender if access.names(inbound.sender.id) else first.sender
        account = access.account(inbound.address.platform, sender)
        key = access.key(first.address, first.sender)
        wait_ms = MORE_MS if inbound.album or inbound.cut_off else 0
        chat = ChatContext(
            key=key,
            now=self.app.clock(),
            user=inbound.sender.name or inbound.sender.id,
            route=Route(address=inbound.address, reply_to=inbound.message_id),
            opening=replace(self.app.resets.opening(str(key)), user_id=inbound.sender.id, wait_ms=wait_ms),
            timezone=self.app.timezone,
            default_model=self.app.chosen.name,
            platform_title=title_of,
            account=account,
        )
        allowed = verdict is AccessDecision.ALLOWED
        active = runs.active(conn, chat.session_key)
        waits = active is not None and active.status is RunStatus.WAITING
        # A message without a mention does not answer a question that waits in a group: people go on talking among themselves.
        if verdict is AccessDecision.OVERHEARD or (not inbound.mentioned and waits):
            said = escape_speaker_marks(shortened(message_text(inbound), overheard.MAX_CHARACTERS))
            if inbound.kind is InboundKind.EDIT:
                overheard.amend(conn, chat.session_key, inbound.message_id, said)
            elif inbound.kind is InboundKind.MESSAGE and inbound.text:
                overheard.add(conn, chat.session_key, inbound.message_id, chat.user, said, chat.now)
            return IntakeResult(outcome=IntakeOutcome.OVERHEARD)
        if inbound.kind is InboundKind.TAP:
            answer = decide(conn, inbound, chat, allowed=allowed and account.may_approve)
            if answer and inbound.tap_id:  # its acknowledgement can say it
                return IntakeResult(outcome=IntakeOutcome.TAKEN, told=answer)
            self._reply(conn, inbound, chat, answer or "")
            return IntakeResult(outcome=IntakeOutcome.IGNORED if answer is None else IntakeOutcome.TAKEN)
        # An edit of a message that was only overheard counts as a new one: it may have got its mention now.
        if inbound.kind is InboundKind.EDIT and not overheard.forget(conn, chat.session_key, inbound.message_id):
            return IntakeResult(outcome=self._edited(conn, inbound, chat))
        parsed = _parsed(inbound)
        if parsed is None:
            return self._message(conn, inbound, chat, allowed=allowed)
        if not inbox.record_once(conn, inbound.dedup_key, chat.session_key, chat.now):  # a repeated event
            return IntakeResult(outcome=IntakeOutcome.IGNORED)
        self._command(conn, inbound, chat, parsed, allowed=allowed)
        return IntakeResult(outcome=IntakeOutcome.TAKEN)

    def _message(self, conn: Connection, inbound: Inbound, chat: ChatContext, *, allowed: bool = True) -> IntakeResult:
        refusal, waiting = self._refusal(conn, inbound, chat), None
        if refusal is None:
            waiting = waiting_for(conn, inbound, chat, allowed=allowed and chat.account.may_approve)
            # What was asked can be answered on a day that is used up, too: the run has begun.
            refusal = None if waiting is not None and waiting.answered else chat.day_limit(conn)
        if refusal is not None:
            return IntakeResult(outcome=self._refuse(conn, inbound, chat, refusal))
        answers = waiting is None or waiting.answered
        messages = _messages(conn, inbound, chat, waiting.ask if waiting and answers else None)
        accepted = _accept(conn, chat, inbound.dedup_key, messages, answers=answers)
        if waiting is not None and not answers and accepted.fresh:
            notify_held_up(conn, inbound, chat, waiting)
        event = "message.accepted" if accepted.fresh else "message.duplicate"
        log.info(event, session_key=chat.session_key, run_id=accepted.run_id, dedup_key=inbound.dedup_key)
        if not accepted.fresh:
            return IntakeResult(outcome=IntakeOutcome.IGNORED)
        if accepted.joined:
            return IntakeResult(outcome=IntakeOutcome.JOINED, run_id=accepted.run_id)
        return IntakeResult(outcome=IntakeOutcome.TAKEN)

    def _refusal(self, conn: Connection, inbound: Inbound, chat: ChatContext) -> str | None:
        limits = self.app.config.limits
        size = len(inbound.text.encode("utf-8", "replace"))
        if size > limits.message_bytes:
            return say("limits.too_long", size=f"{size // 1024} kB", limit=f"{limits.message_bytes // 1024} kB")
        if not inbound.text and not inbound.attachments:
            return say("limits.kind_unknown")
        if (count := inbox.count_unread(conn, chat.session_key)) >= limits.queue_per_chat:
            return say("limits.queue_full", count=count)
        lock(conn, chat.session_key)
        return None

    def _refuse(self, conn: Connection, inbound: Inbound, chat: ChatContext, refusal: str) -> IntakeOutcome:
        """Replies with a refusal, at most once a minute for each conversation: a flood of messages must not become a flood of replies."""
        if not inbox.record_once(conn, inbound.dedup_key, chat.session_key, chat.now):
            return IntakeOutcome.IGNORED
        self._put(conn, chat, Content(text=refusal), f"refused:{chat.session_key}:{chat.now // _MINUTE_MS}")
        return IntakeOutcome.REFUSED

    def _command(self, conn: Connection, inbound: Inbound, chat: ChatContext, parsed: Parsed, *, allowed: bool) -> None:
        command = find(parsed.name)
        active = runs.active(conn, chat.session_key)
        at_work = active is not None
        if parsed.name == START and inbound.address.kind is ChatKind.DM:
            # Clients send it by themselves: a greeting in a DM, one line once in a group.
            welcome = redeem_owner_code(conn, inbound, parsed.argument, chat.now) or say("people.paired")
            self._reply(conn, inbound, chat, welcome)
        elif parsed.name == START:
            first = people.first_address(conn, inbound.address)
            self._put(conn, chat, Content(text=say("people.group_hello")), _hello_key(first))
        elif (command is not None and not allowed and command.is_for_allowed(parsed.argument, at_work=at_work)) or (
            command is not None and command.decides and not chat.account.may_approve
        ):
            if active is not None and command.decides and (ask := asks.open_of(conn, active.id)) is not None:
                asks.refuse(conn, ask, chat.account.who, "not allowed to decide", chat.now)
            self._reply(conn, inbound, chat, say("people.not_allowed"))
        else:
            self._reply(conn, inbound, chat, execute(conn, chat, parsed))
            if command is not None and command.begins and parsed.argument:
                key = f"{inbound.dedup_key}:words"  # the event's own key is that of the command
                self._message(conn, replace(inbound, text=parsed.argument, dedup_key=key), chat)

    def _reply(self, conn: Connection, inbound: Inbound, chat: ChatContext, answer: str) -> None:
        if answer:
            route = replace(chat.route, respond_to=inbound.respond_to) if chat.route is not None else None
            self._put(conn, replace(chat, route=route), Content(text=answer), f"reply:{inbound.dedup_key}")

    def _put(self, conn: Connection, chat: ChatContext, out: Content, key: str) -> None:
        if chat.route is not None:
            outbox.put(conn, chat.route, out, chat.now, dedup_key=key, session_key=chat.session_key)

    def _edited(self, conn: Connection, inbound: Inbound, chat: ChatContext) -> IntakeOutcome:
        """Changes an unread message after its edit. Tells the agent when the message is being worked on, and the sender, in a DM, when it
        was answered.
        """
        if inbox.by_dedup_key(conn, inbound.dedup_key) is not None:
            return IntakeOutcome.IGNORED
        refusal = self._refusal(conn, inbound, chat)
        if refusal is None:
            refusal = chat.day_limit(conn)
        if refusal is not None:
            return self._refuse(conn, inbound, chat, refusal)
        message = inbox_message(inbound)
        if inbox.amend(conn, chat.session_key, inbound.message_id, message.content or ""):
            inbox.record_once(conn, inbound.dedup_key, chat.session_key, chat.now)
            return IntakeOutcome.TAKEN
        if runs.active(conn, chat.session_key) is None:
            if inbound.address.kind is not ChatKind.DM:
                return IntakeOutcome.IGNORED
            inbox.record_once(conn, inbound.dedup_key, chat.session_key, chat.now)
            self._reply(conn, inbound, chat, say("limits.edited_late"))
            return IntakeOutcome.TAKEN
        if _parsed(inbound) is not None:
            return IntakeOutcome.IGNORED
        note = "(this replaces an earlier message of mine, which I edited)"
        edited = replace(message, content=f"{message.content}\n{note}")
        _accept(conn, chat, inbound.dedup_key, [edited], answers=False)
        return IntakeOutcome.TAKEN

    def _stranger(self, conn: Connection, inbound: Inbound, pair: bool) -> None:
        if answer := answer_stranger(conn, inbound, _parsed(inbound), self.app.clock(), pair=pair):
            key = f"reply:{inbound.dedup_key}"
            outbox.put(
                conn,
                Route(address=inbound.address, respond_to=inbound.private_reply or inbound.respond_to),
                Content(text=answer),
                self.app.clock(),
                dedup_key=key,
                session_key="",
            )


def _parsed(inbound: Inbound) -> Parsed | None:
    """Returns the command in the message. None for forwarded messages, whose words are not the sender's, and for messages with files."""
    return None if inbound.forwarded_from or inbound.attachments else parse(inbound.text)


def _addressed(inbound: Inbound) -> Inbound:
    """Marks a command without a bot's name as meant for us if we have a command of that name."""
    if not inbound.for_any_bot:
        return inbound
    parsed = None if inbound.forwarded_from else parse(inbound.text)
    if parsed is not None and (parsed.name == START or find(parsed.name) is not None):
        return inbound
    return replace(inbound, mentioned=False, mentions_other=parsed is not None)


def _hello_key(address: Address) -> str:
    return f"hello:{address.platform}:{address.chat_id}"


def _paired(conn: Connection) -> dict[str, Paired]:
    found = {platform: Paired(owner=owner) for platform, owner in people.owners(conn).items()}
    for person in people.everybody(conn):
        known = found.get(person.platform, Paired())
        found[person.platform] = replace(known, users=known.users | {person.user_id})
    return found


def _answered_in_thread(conn: Connection, inbound: Inbound, access: ChatAccess) -> bool:
    first = first_known(conn, inbound)
    return runs.answered_in(conn, str(access.key(first.address, first.sender)), inbound.address)


def _messages(conn: Connection, inbound: Inbound, chat: ChatContext, answered: Ask | None) -> list[Message]:
    """Returns what a message adds to the journal. The answer to an approval is the bare text, so that "yes" stays "yes" when it is a reply."""
    if answered is not None and answered.kind is AskKind.APPROVAL and not inbound.forwarded_from:
        return [replace(inbox_message(replace(inbound, quote=None)), content=inbound.text)]
    if answered is not None:
        return [inbox_message(replace(inbound, quote=None))]
    # What was overheard since the last message comes before it; not for a repeated event, which would consume it.
    is_first = inbound.address.kind is not ChatKind.DM and inbox.by_dedup_key(conn, inbound.dedup_key) is None
    before = overheard.take(conn, chat.session_key) if is_first else ()
    return [*(Message(content=f"[{name}] {text}", sender=name) for name, text in before), inbox_message(inbound)]


def _accept(
    conn: Connection, chat: ChatContext, dedup_key: str, messages: list[Message], *, answers: bool = True
) -> Accepted:
    key, route = chat.session_key, chat.route
    new = InboxRow(dedup_key=dedup_key, session_key=key, messages=messages, route=route, who=chat.account.who or None)
    return runs.accept(conn, new, chat.opening, chat.now, answers=answers)


# --- the text of a message, as the journal keeps it ---

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


def inbox_message(inbound: Inbound) -> Message:
    """Returns the message for the journal, with the files of the message that it replies to."""
    text = _with_quote(message_text(inbound), inbound.quote)
    in_dm = inbound.address.kind is ChatKind.DM
    name = inbound.sender.name or inbound.sender.id
    content = text if in_dm else f"[{name}] {escape_speaker_marks(text)}"
    platform, quote = str(inbound.address.platform), inbound.quote
    files = [replace(file, platform=platform) for file in inbound.attachments]
    if quote is not None:
        files += [replace(file, platform=platform, of=_whose(quote)) for file in quote.attachments]
    return Message(content=content, sender=name, attachments=tuple(files))


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
