"""One source, one key, for ever; and two that must not meet never do."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessions.keys import Address, ChatKind, DmScope, InvalidKey, KeyRules, Platform, Sender, SessionKey, whatsapp_id

TRICKY = st.sampled_from(
    [
        "thread",
        "user",
        "dm",
        "a:b",
        ":",
        "%",
        "%3A",
        "%25",
        "%253A",
        "a/b",
        " ",
        "a b",
        "👩‍👩‍👧",
        "é",
        "x" * 256,
        "agent:main:cli:1",
        "\n",
        "*",
        "-100123",
    ]
)
IDS = st.one_of(TRICKY, st.text(min_size=1, max_size=256))
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)
ADDRESSES = st.builds(
    Address,
    platform=st.sampled_from(Platform),
    kind=st.sampled_from(ChatKind),
    chat_id=IDS.filter(str.strip),
    thread_id=st.none() | IDS,
)
SENDERS = st.builds(Sender, id=IDS.filter(str.strip), name=st.text(max_size=20))
RULES = st.builds(
    KeyRules,
    owner=st.none() | IDS,
    dm_scope=st.sampled_from(DmScope),
    group_sessions_per_user=st.booleans(),
    thread_sessions=st.booleans(),
    agent=NAMES,
)
KEYS = st.one_of(
    st.builds(SessionKey.of, ADDRESSES, SENDERS, RULES),
    st.builds(SessionKey.api, NAMES, IDS, agent=NAMES),
    st.builds(SessionKey.thread, NAMES, IDS),
    st.builds(SessionKey.cli, IDS),
    st.builds(SessionKey.job, IDS),
)


@given(KEYS)
def test_a_key_survives_being_written_down(key: SessionKey) -> None:
    assert SessionKey.parse(str(key)) == key


@given(KEYS, KEYS)
def test_different_keys_are_written_differently(one: SessionKey, other: SessionKey) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(ADDRESSES, SENDERS, RULES, st.text(max_size=10))
def test_the_display_name_decides_nothing(address: Address, sender: Sender, rules: KeyRules, name: str) -> None:
    assert SessionKey.of(address, sender, rules) == SessionKey.of(address, replace(sender, name=name), rules)


@given(ADDRESSES, ADDRESSES, SENDERS, RULES)
def test_two_groups_never_share_a_key(one: Address, other: Address, sender: Sender, rules: KeyRules) -> None:
    places = {(a.platform, a.kind, a.chat_id) for a in (one, other)}
    assume(ChatKind.DM not in {one.kind, other.kind} and len(places) == 2)
    assert str(SessionKey.of(one, sender, rules)) != str(SessionKey.of(other, sender, rules))


@given(ADDRESSES, SENDERS, SENDERS, RULES)
def test_a_stranger_never_gets_the_owners_dm(
    address: Address, owner: Sender, stranger: Sender, rules: KeyRules
) -> None:
    assume(owner.id != stranger.id and address.platform is not Platform.WHATSAPP)
    dm = replace(address, kind=ChatKind.DM)
    own_rules = replace(rules, owner=owner.id, dm_scope=DmScope.OWNER)
    mine, theirs = SessionKey.of(dm, owner, own_rules), SessionKey.of(dm, stranger, own_rules)
    assert mine != theirs
    assert mine.namespace != theirs.namespace


@given(ADDRESSES, SENDERS, SENDERS, RULES)
def test_per_user_sessions_keep_people_apart(address: Address, one: Sender, other: Sender, rules: KeyRules) -> None:
    assume(one.id != other.id and address.platform is not Platform.WHATSAPP and address.kind is not ChatKind.DM)
    per_user = replace(rules, group_sessions_per_user=True)
    assert SessionKey.of(address, one, per_user) != SessionKey.of(address, other, per_user)


@given(KEYS)
def test_only_the_owners_own_places_share_a_memory(key: SessionKey) -> None:
    shared = key.scope in {"cli", "thread"} or (key.kind is ChatKind.DM and key.chat_id is None)
    assert (key.namespace == f"agent:{key.agent}") == shared


@given(KEYS, KEYS)
def test_namespaces_of_unshared_places_differ_when_the_chats_do(one: SessionKey, other: SessionKey) -> None:
    private = [key for key in (one, other) if key.namespace != f"agent:{key.agent}"]
    assume(len(private) == 2 and replace(one, thread_id=None) != replace(other, thread_id=None))
    assert one.namespace != other.namespace


@given(st.text(max_size=60))
def test_any_text_is_a_key_or_a_clear_refusal(text: str) -> None:
    try:
        key = SessionKey.parse(text)
    except InvalidKey as refusal:
        assert str(refusal)  # noqa: PT017  # a key is just as good
    else:
        assert SessionKey.parse(str(key)) == key


GROUP_PUNCTUATION = st.sampled_from(["", " ", "-", ".", " (", ") ", "/"])


@given(st.from_regex(r"[1-9][0-9]{6,14}", fullmatch=True), st.data())
def test_a_number_in_any_notation_is_one_person(digits: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(digits) - 1))
    spelled = digits[:cut] + data.draw(GROUP_PUNCTUATION) + digits[cut:]
    head = data.draw(st.sampled_from(["", "+", "00", "whatsapp:", "whatsapp:+"]))
    tail = data.draw(st.sampled_from(["", "@s.whatsapp.net", "@c.us", ":12@s.whatsapp.net"]))
    pad = data.draw(st.sampled_from(["", " "]))
    assert whatsapp_id(pad + head + spelled + tail + pad) == digits


@pytest.mark.parametrize("raw", ["12036304@g.us", "BR.1A2B3C", "abc", "१२३४५६७"])
def test_what_is_no_number_stays(raw: str) -> None:
    assert whatsapp_id(raw) == raw
