"""Decides who may talk to the agent: denied by default, by stable ids only."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from sessions.keys import Address, ChatKind, DmScope, KeyRules, Sender, SessionKey
from sessions.messages import Inbound

ANYBODY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """What the configuration of one platform says about access."""

    allowed_users: frozenset[str] = frozenset()
    first_allowed: str | None = None
    allowed_chats: frozenset[str] = frozenset()
    require_mention: bool = True
    dm_scope: DmScope = DmScope.OWNER
    owner: str = ""
    group_sessions_per_user: bool = False
    thread_sessions: bool = False
    pair_strangers: bool = True


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
        if not self._is_meant(inbound):
            return AccessDecision.OVERHEARD
        return AccessDecision.ALLOWED if allowed else AccessDecision.PRESENT

    def _is_meant(self, inbound: Inbound) -> bool:
        return inbound.mentioned or (not self.rules.require_mention and not inbound.mentions_other)

    def is_allowed(self, sender: Sender) -> bool:
        return self._among(sender.id, self.rules.allowed_users) or sender.id in self.paired.users

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
