"""Decides who may talk to the agent: denied by default, by stable ids only.

Answers strangers: one code that is valid for an hour, or silence; nothing of what they say is kept.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from adapters.registry import manifest
from gateway.commands import ChatAccount, Parsed
from gateway.config.sections import PersonSection
from gateway.observe.logging import get_logger
from gateway.texts import say
from sessions import audit, people
from sessions.keys import Address, ChatKind, DmScope, KeyRules, Sender, SessionKey
from sessions.messages import Inbound, InboundKind
from sessions.spending import NO_LIMIT, DayLimit

if TYPE_CHECKING:
    from gateway.config.model import Config

ANYBODY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """What the configuration of one platform says about access. `people`: the section of each id; None: nobody is named, and whoever has
    access may approve. `day_limit`: of each person who has no other."""

    allowed_users: frozenset[str] = frozenset()
    first_allowed: str | None = None
    allowed_chats: frozenset[str] = frozenset()
    require_mention: bool = True
    dm_scope: DmScope = DmScope.OWNER
    owner: str = ""
    group_sessions_per_user: bool = False
    thread_sessions: bool = False
    pair_strangers: bool = True
    people: Mapping[str, PersonSection] | None = None
    day_limit: DayLimit = NO_LIMIT

    def person(self, user_id: str) -> PersonSection | None:
        return (self.people or {}).get(user_id)


def access_rules(config: "Config", platform: str) -> AccessRules:
    """Returns the rules of this platform, its ids in the platform's own notation."""
    section = config.platforms.by_name()[platform]
    normal = manifest(platform).normal_user_id
    allowed = [normal(user) for user in section.allowed_users]
    named = [user for user in allowed if user != "*"]
    return AccessRules(
        allowed_users=frozenset(allowed),
        first_allowed=named[0] if named else None,
        allowed_chats=frozenset(section.allowed_chats),
        require_mention=section.require_mention,
        dm_scope=DmScope(section.dm_scope),
        owner=normal(section.owner),
        group_sessions_per_user=section.group_sessions_per_user,
        thread_sessions=section.thread_sessions,
        pair_strangers=section.unknown_users == "pair",
        people=_people(config, platform) if config.people else None,
        day_limit=limit_of_everybody(config),
    )


def day_limit(person: PersonSection, everybody: DayLimit) -> DayLimit:
    """Returns what this person may use in a day. `everybody`: what is in force where they have nothing of their own."""
    messages, tokens = person.messages_per_day or everybody.messages, person.tokens_per_day or everybody.tokens
    return DayLimit(messages=messages, tokens=tokens)


def limit_of_everybody(config: "Config") -> DayLimit:
    return DayLimit(messages=config.limits.person_messages_per_day, tokens=config.limits.person_tokens_per_day)


def _people(config: "Config", platform: str) -> Mapping[str, PersonSection]:
    """Returns who has which id on this platform."""
    normal = manifest(platform).normal_user_id
    pairs = [(each.partition(":"), person) for person in config.people for each in person.ids]
    return {normal(user): person for (where, _, user), person in pairs if where == platform}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The people of one platform who were approved by a pairing code, and its stored owner."""

    users: frozenset[str] = frozenset()
    owner: str | None = None


class AccessDecision(StrEnum):
    ALLOWED = "allowed"
    PRESENT = "present"  # in a chat that is open to everybody present
    OVERHEARD = "overheard"  # not meant for the bot, kept as context
    STRANGER = "stranger"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class ChatAccess:
    rules: AccessRules
    paired: Paired = field(default_factory=Paired)

    def judge(self, inbound: Inbound) -> AccessDecision:
        """Decides about one message. A stranger is answered in a DM, and where nobody else sees it: in a group anybody could cause it."""
        if inbound.sender.is_bot:
            return AccessDecision.IGNORED
        allowed = self.is_allowed(inbound.sender)
        if inbound.address.kind is ChatKind.DM:
            return AccessDecision.ALLOWED if allowed else AccessDecision.STRANGER
        # A thread of Discord is a channel with an id of its own; its parent is what people write into the configuration.
        chats = filter(None, (inbound.address.chat_id, inbound.parent_chat))
        open_chat = any(self._among(chat, self.rules.allowed_chats) for chat in chats)
        if not allowed and not open_chat:
            asks = inbound.mentioned and inbound.private_reply != ""
            return AccessDecision.STRANGER if asks else AccessDecision.IGNORED
        if not inbound.mentioned and (self.rules.require_mention or inbound.mentions_other):
            return AccessDecision.OVERHEARD
        return AccessDecision.ALLOWED if allowed else AccessDecision.PRESENT

    def is_allowed(self, sender: Sender) -> bool:
        if self._among(sender.id, self.rules.allowed_users) or sender.id in self.paired.users:
            return True
        person = self.rules.person(sender.id)
        return person is not None and bool(person.scopes)

    def names(self, user_id: str) -> bool:
        """Returns whether this is the id of the owner, or of somebody of the section people."""
        return user_id == self.owner or self.rules.person(user_id) is not None

    def account(self, platform: str, sender: Sender) -> ChatAccount:
        """Returns as whom this sender is counted, and what they may do beyond talking."""
        person, limit = self.rules.person(sender.id), self.rules.day_limit
        if person is None:
            may = self.rules.people is None or sender.id == self.owner
            return ChatAccount(who=f"{platform}:{sender.id}", may_approve=may, limit=limit)
        may = sender.id == self.owner or not {"approve", "admin"}.isdisjoint(person.scopes)
        return ChatAccount(who=person.name, may_approve=may, limit=day_limit(person, limit))

    @staticmethod
    def _among(wanted: str, allowed: Iterable[str]) -> bool:
        return wanted in allowed or ANYBODY in allowed

    @property
    def owner(self) -> str | None:
        """Returns the configured owner, else the stored one, else the first of `allowed_users`; None where nobody is. `*` names nobody."""
        # The stored one before the list: whose the owner's sessions and notes are must not change with the order of a list.
        return self.rules.owner or self.paired.owner or self.rules.first_allowed

    def key(self, address: Address, sender: Sender) -> SessionKey:
        rules = KeyRules(
            owner=self.owner,
            dm_scope=self.rules.dm_scope,
            group_sessions_per_user=self.rules.group_sessions_per_user,
            thread_sessions=self.rules.thread_sessions,
        )
        return SessionKey.of(address, sender, rules)

    def owner_key(self, platform: str) -> SessionKey | None:
        """Returns the key of the owner's own conversation with the bot; None while nobody is the owner."""
        if self.owner is None:
            return None
        return self.key(Address(platform=platform, kind=ChatKind.DM, chat_id=self.owner), Sender(id=self.owner))


log = get_logger(__name__)

START = "start"
_CODE = re.compile(r"(?:start\s+)?([A-Z2-9]{4}-?[A-Z2-9]{4})", re.IGNORECASE)
"""The owner's code as people type it who leave the slash out."""


def answer_stranger(conn: Connection, inbound: Inbound, parsed: Parsed | None, now: int, *, pair: bool) -> str:
    """Returns the reply to a stranger; empty for none. `pair`: strangers get a code."""
    if parsed is None:
        code = found[1] if (found := _CODE.fullmatch(inbound.text.strip())) else ""
    else:
        code = parsed.argument if parsed.name == START else ""
    if greeting := redeem_owner_code(conn, inbound, code, now):
        return greeting
    if not pair or inbound.kind not in {InboundKind.MESSAGE, InboundKind.TAP}:
        return ""
    platform, sender, where = inbound.address.platform, inbound.sender, inbound.address
    if where.kind is not ChatKind.DM:  # they hear later, alone too, that they were let in
        where = Address(platform=platform, kind=ChatKind.DM, chat_id=sender.id)
    asked = people.request_access(conn, platform, sender.id, sender.name, where, now)
    if asked is None:
        return ""
    log.info("pair.requested", platform=platform, user_id=sender.id)
    return say("people.pairing", code=asked, owner=say("people.the_owner"))


def redeem_owner_code(conn: Connection, inbound: Inbound, code: str, now: int) -> str:
    """Makes the sender the owner if the code is right, and returns the greeting; empty for any other code."""
    if not code:
        return ""
    platform, sender = inbound.address.platform, inbound.sender
    # Cut: a code has nine characters, and whatever a stranger sends is looked up.
    owner = people.redeem_owner_code(conn, platform, code[:16], sender.id, sender.name, now)
    if owner is None:
        return ""
    audit.record(conn, now, f"{platform}:{sender.id}", "owner.claimed", platform)
    return say("people.owner", name=sender.name)
