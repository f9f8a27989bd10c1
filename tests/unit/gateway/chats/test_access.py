"""Who may talk to the agent: nobody, unless their id is on a list."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.chats.access import AccessDecision, AccessRules, ChatAccess, Paired, access_rules
from gateway.config.model import Config
from sessions.keys import Address, ChatKind, Platform, Sender
from sessions.messages import Inbound

OPEN = {"allowed_chats": frozenset({"-1"})}
LISTED = {"allowed_users": frozenset({"7"})}
ANYBODY = {"allowed_users": frozenset({"*"})}
READS_ALL = {"require_mention": False}


def message(kind: ChatKind = ChatKind.DM, user: str = "7", chat: str = "-1", **more: Any) -> Inbound:
    bot, name = more.pop("is_bot", False), more.pop("name", "Ann")
    return Inbound(
        dedup_key="d",
        address=Address(platform=Platform.TELEGRAM, kind=kind, chat_id=user if kind is ChatKind.DM else chat),
        sender=Sender(id=user, name=name, is_bot=bot),
        message_id="1",
        text="hello",
        **more,
    )


GROUP, CHANNEL = ChatKind.GROUP, ChatKind.CHANNEL


@pytest.mark.parametrize(
    ("rules", "inbound", "verdict"),
    [
        ({}, message(), AccessDecision.STRANGER),
        ({}, message(GROUP), AccessDecision.IGNORED),
        ({}, message(CHANNEL), AccessDecision.IGNORED),
        (LISTED, message(), AccessDecision.ALLOWED),
        (LISTED, message(user="8"), AccessDecision.STRANGER),
        (LISTED, message(user="77"), AccessDecision.STRANGER),
        (LISTED, message(user="8", name="7"), AccessDecision.STRANGER),
        ({"allowed_users": frozenset({"Ann"})}, message(name="Ann"), AccessDecision.STRANGER),
        (LISTED, message(is_bot=True), AccessDecision.IGNORED),
        (ANYBODY, message(is_bot=True), AccessDecision.IGNORED),
        (ANYBODY, message(user="8"), AccessDecision.ALLOWED),
        ({"allowed_users": frozenset({"7*"})}, message(user="77"), AccessDecision.STRANGER),
        (LISTED, message(GROUP), AccessDecision.ALLOWED),
        (LISTED, message(GROUP, mentioned=False), AccessDecision.OVERHEARD),
        (LISTED, message(GROUP, user="8"), AccessDecision.IGNORED),
        (LISTED | OPEN, message(GROUP, user="8"), AccessDecision.PRESENT),
        (LISTED | OPEN, message(GROUP), AccessDecision.ALLOWED),
        (OPEN, message(GROUP, user="8", mentioned=False), AccessDecision.OVERHEARD),
        (OPEN, message(GROUP, user="8", chat="-2"), AccessDecision.IGNORED),
        (OPEN, replace(message(GROUP, user="8", chat="-2"), parent_chat="-1"), AccessDecision.PRESENT),
        (OPEN, message(CHANNEL, user="8"), AccessDecision.PRESENT),
        (OPEN, message(user="-1"), AccessDecision.STRANGER),
        ({"allowed_chats": frozenset({"*"})}, message(GROUP, user="8", chat="-2"), AccessDecision.PRESENT),
        ({"allowed_chats": frozenset({"*"})}, message(user="8"), AccessDecision.STRANGER),
        (LISTED | READS_ALL, message(GROUP, mentioned=False), AccessDecision.ALLOWED),
        (LISTED | READS_ALL, message(GROUP, mentioned=False, mentions_other=True), AccessDecision.OVERHEARD),
        (LISTED | READS_ALL, message(GROUP, mentions_other=True), AccessDecision.ALLOWED),
    ],
)
def test_who_may(rules: dict[str, Any], inbound: Inbound, verdict: AccessDecision):
    assert ChatAccess(AccessRules(**rules)).judge(inbound) is verdict


def test_who_was_paired_is_let_in_by_id():
    access = ChatAccess(AccessRules(), Paired(users=frozenset({"7"}), owner="7"))
    assert access.judge(message()) is AccessDecision.ALLOWED
    assert access.judge(message(user="8", name="7")) is AccessDecision.STRANGER


@pytest.mark.parametrize(
    ("section", "stored", "owner"),
    [
        ({}, None, None),
        ({"allowed_users": ["*"]}, None, None),
        ({"allowed_users": ["7", "8"]}, None, "7"),
        ({"allowed_users": ["7", "8"]}, "9", "9"),
        ({"allowed_users": ["*", "8"]}, None, "8"),
        ({"allowed_users": ["7", "8"], "owner": "8"}, "9", "8"),
        ({}, "9", "9"),
    ],
)
def test_who_the_owner_is(section: dict[str, Any], stored: str | None, owner: str | None):
    rules = access_rules(Config.model_validate({"platforms": {"telegram": section}}), "telegram")
    assert ChatAccess(rules, Paired(owner=stored)).owner == owner


@pytest.mark.parametrize("anybody", [["*"], ["*", "7"]])
def test_with_a_star_strangers_do_not_share_a_memory(anybody: list[str]):
    access = ChatAccess(
        access_rules(Config.model_validate({"platforms": {"telegram": {"allowed_users": anybody}}}), "telegram")
    )
    keys = {str(access.key(message.address, message.sender)) for message in (message(user="8"), message(user="9"))}
    assert keys == {"agent:main:telegram:dm:8", "agent:main:telegram:dm:9"}


def test_numbers_of_whatsapp_are_one_whatever_their_notation():
    section = {"allowed_users": ["+49 170 1234567", "*"], "owner": "0049 170 1234567"}
    rules = access_rules(Config.model_validate({"platforms": {"whatsapp": section}}), "whatsapp")
    assert rules.allowed_users == {"491701234567", "*"}
    assert rules.owner == rules.first_allowed == "491701234567"
