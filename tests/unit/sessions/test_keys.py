"""The table of session keys, row by row, and the memory that each belongs to."""

import pytest

from sessions.keys import Address, ChatKind, DmScope, InvalidKey, KeyRules, Platform, Sender, SessionKey

OWNER, OTHER = Sender(id="111", name="Ann"), Sender(id="222", name="Bob")
RULES = KeyRules(owner="111")


def at(platform: Platform, kind: ChatKind, chat_id: str, thread_id: str | None = None) -> Address:
    return Address(platform=platform, kind=kind, chat_id=chat_id, thread_id=thread_id)


DM = at(Platform.TELEGRAM, ChatKind.DM, "111")
GROUP = at(Platform.TELEGRAM, ChatKind.GROUP, "-100200", "7")
CHANNEL = at(Platform.SLACK, ChatKind.CHANNEL, "C0:1", "1700.5")


@pytest.mark.parametrize(
    ("address", "sender", "rules", "key"),
    [
        (DM, OWNER, RULES, "agent:main:telegram:dm"),
        (at(Platform.DISCORD, ChatKind.DM, "9"), OWNER, RULES, "agent:main:discord:dm"),
        (at(Platform.SLACK, ChatKind.DM, "D1"), OWNER, RULES, "agent:main:slack:dm"),
        (DM, OTHER, RULES, "agent:main:telegram:dm:222"),
        (DM, OTHER, KeyRules(owner=None), "agent:main:telegram:dm:222"),
        (DM, OWNER, KeyRules(owner="111", dm_scope=DmScope.PER_USER), "agent:main:telegram:dm:111"),
        (DM, OTHER, KeyRules(owner="111", dm_scope=DmScope.SHARED), "agent:main:telegram:dm"),
        (at(Platform.WHATSAPP, ChatKind.DM, "+44 7700 900123"), OTHER, RULES, "agent:main:whatsapp:dm:447700900123"),
        (GROUP, OTHER, RULES, "agent:main:telegram:group:-100200"),
        (CHANNEL, OTHER, RULES, "agent:main:slack:channel:C0%3A1"),
        (GROUP, OTHER, KeyRules(thread_sessions=True), "agent:main:telegram:group:-100200:thread:7"),
        (CHANNEL, OTHER, KeyRules(thread_sessions=True), "agent:main:slack:channel:C0%3A1:thread:1700.5"),
        (at(Platform.TELEGRAM, ChatKind.CHANNEL, "-9", "7"), OTHER, RULES, "agent:main:telegram:channel:-9:thread:7"),
        (GROUP, OTHER, KeyRules(group_sessions_per_user=True), "agent:main:telegram:group:-100200:user:222"),
        (
            GROUP,
            OTHER,
            KeyRules(group_sessions_per_user=True, thread_sessions=True),
            "agent:main:telegram:group:-100200:thread:7:user:222",
        ),
    ],
)
def test_the_key_of_a_chat(address: Address, sender: Sender, rules: KeyRules, key: str) -> None:
    assert str(SessionKey.of(address, sender, rules)) == key


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (SessionKey.api("laptop", "my/session: 1%"), "agent:main:api:laptop:my/session: 1%"),
        (SessionKey.thread("main", "thr_1"), "agent:main:thread:thr_1"),
        (SessionKey.thread("dep_9f", "thr_1"), "agent:dep_9f:thread:thr_1"),
        (SessionKey.cli("20250305_091523_a1b2c3d4"), "agent:main:cli:20250305_091523_a1b2c3d4"),
        (SessionKey.job("0a1b2c3d4e5f"), "agent:main:job:0a1b2c3d4e5f"),
    ],
)
def test_the_key_of_what_no_chat_carries(key: SessionKey, text: str) -> None:
    assert str(key) == text
    assert SessionKey.parse(text) == key


@pytest.mark.parametrize(
    ("key", "namespace"),
    [
        ("agent:main:telegram:dm", "agent:main"),
        ("agent:main:discord:dm", "agent:main"),
        ("agent:main:cli:20250305_091523_a1b2c3d4", "agent:main"),
        ("agent:main:thread:thr_1", "agent:main"),
        ("agent:dep_9:thread:thr_1", "agent:dep_9"),
        ("agent:main:telegram:dm:222", "agent:main:telegram:dm:222"),
        ("agent:main:telegram:group:-5", "agent:main:telegram:group:-5"),
        ("agent:main:telegram:group:-5:thread:7", "agent:main:telegram:group:-5"),
        ("agent:main:telegram:channel:-9:thread:7", "agent:main:telegram:channel:-9:thread:7"),
        ("agent:main:slack:channel:C1:thread:7", "agent:main:slack:channel:C1"),
        ("agent:main:api:laptop:x", "agent:main:api:laptop:x"),
    ],
)
def test_the_memory_of_a_key(key: str, namespace: str) -> None:
    assert SessionKey.parse(key).namespace == namespace


@pytest.mark.parametrize(
    "text",
    [
        "",
        "agent:main",
        "agent::telegram:dm",
        "agent:main:ICQ:dm",
        "agent:main:telegram:party:1",
        "agent:main:telegram:group",
        "agent:main:telegram:group:",
        "agent:main:telegram:group:1:topic:2",
        "agent:main:api:lap top:x",
        "agent:main:api:laptop:",
        "agent:main:cli:",
        "user:main:cli:1",
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidKey):
        SessionKey.parse(text)


def test_an_api_keys_name_holds_no_separator() -> None:
    with pytest.raises(InvalidKey, match="letters, digits"):
        SessionKey.api("a:b", "x")
