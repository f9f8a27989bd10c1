"""When a conversation starts afresh: over changes of clocks, leap days, and clocks that jump."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sessions.keys import ChatKind, SessionKey
from sessions.policy import Override, ResetMode, ResetPolicy, due, latest_hour, next_reset, policy_for
from sessions.records import EndReason

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ZONES = [
    "UTC",
    "Europe/London",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Africa/Casablanca",
]
# From 2011, when Samoa left out a day, to 2037.
MOMENTS = st.integers(1_300_000_000_000, 2_130_000_000_000)
POLICIES = st.builds(
    ResetPolicy,
    mode=st.sampled_from(ResetMode),
    idle_minutes=st.integers(1, 20_000),
    at_hour=st.integers(0, 23),
    timezone=st.sampled_from(ZONES),
)
LONDON = ResetPolicy(mode=ResetMode.DAILY, at_hour=4, timezone="Europe/London")


def ms(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@given(POLICIES, MOMENTS, st.integers(-2 * DAY, 40 * DAY))
@example(ResetPolicy(mode=ResetMode.DAILY, at_hour=4, timezone="Pacific/Apia"), ms("2011-12-29T20:00"), 14 * HOUR)
def test_the_next_reset_is_the_first_moment_at_which_it_is_due(policy: ResetPolicy, last: int, passed: int) -> None:
    at = next_reset(last, policy, last + passed)
    if policy.mode is ResetMode.NONE:
        assert at is None
        assert due(last, policy, last + passed) is None
        return
    assert at is not None
    assert due(last, policy, at) is not None
    assert due(last, policy, at - 1) is None
    assert (due(last, policy, last + passed) is not None) == (last + passed >= at)


@given(POLICIES, MOMENTS, st.integers(0, 3 * DAY), st.integers(0, 3 * DAY))
def test_what_is_due_stays_due(policy: ResetPolicy, last: int, first: int, more: int) -> None:
    if due(last, policy, last + first) is not None:
        assert due(last, policy, last + first + more) is not None


@given(POLICIES, MOMENTS, st.integers(0, 10 * DAY))
def test_a_clock_that_jumped_back_resets_nothing(policy: ResetPolicy, last: int, back: int) -> None:
    assert due(last, policy, last - back) is None


@given(POLICIES, MOMENTS)
def test_the_latest_hour_is_past_and_less_than_two_days_ago(policy: ResetPolicy, now: int) -> None:
    moment = latest_hour(policy, now)
    assert now - 2 * DAY - 2 * HOUR < moment <= now
    local = datetime.fromtimestamp(moment / 1000, UTC).astimezone(ZoneInfo(policy.timezone))
    shift = (local.hour * 60 + local.minute - policy.at_hour * 60) % (24 * 60)
    assert shift in {0, 30, 60}, "only an hour that the clocks skip is another hour"


@given(POLICIES, MOMENTS, st.integers(0, 40 * DAY))
def test_both_is_whichever_comes_first_and_idle_is_named_first(policy: ResetPolicy, last: int, passed: int) -> None:
    now = last + passed
    idle = due(last, replace(policy, mode=ResetMode.IDLE), now)
    daily = due(last, replace(policy, mode=ResetMode.DAILY), now)
    assert due(last, replace(policy, mode=ResetMode.BOTH), now) == (idle or daily)


@given(MOMENTS, st.integers(1, 20_000))
def test_idle_is_more_than_so_many_minutes(last: int, minutes: int) -> None:
    policy = ResetPolicy(mode=ResetMode.IDLE, idle_minutes=minutes)
    assert due(last, policy, last + minutes * MINUTE) is None
    assert due(last, policy, last + minutes * MINUTE + 1) is EndReason.IDLE


def test_a_message_exactly_at_the_hour_belongs_to_the_new_day() -> None:
    hour = ms("2025-06-10T04:00", "Europe/London")
    assert due(hour, LONDON, hour) is None
    assert due(hour, LONDON, hour + DAY - 1) is None
    assert due(hour, LONDON, hour + DAY) is EndReason.DAILY
    assert due(hour - 1, LONDON, hour) is EndReason.DAILY


@pytest.mark.parametrize(
    ("zone", "at_hour", "day", "utc"),
    [
        ("Europe/London", 4, "2025-03-29", "2025-03-29T04:00"),
        ("Europe/London", 4, "2025-03-30", "2025-03-30T03:00"),  # clocks went forward that night
        ("Europe/London", 4, "2025-10-25", "2025-10-25T03:00"),
        ("Europe/London", 4, "2025-10-26", "2025-10-26T04:00"),  # and back that night
        ("Europe/London", 1, "2025-03-30", "2025-03-30T01:00"),  # an hour that does not exist: when it would have been
        ("Europe/London", 1, "2025-10-26", "2025-10-26T00:00"),  # an hour that comes twice: the first
        ("America/New_York", 2, "2025-03-09", "2025-03-09T07:00"),
        ("Europe/London", 0, "2024-02-29", "2024-02-29T00:00"),
        ("Europe/London", 23, "2024-02-29", "2024-02-29T23:00"),
        ("Asia/Kathmandu", 0, "2024-03-01", "2024-02-29T18:15"),
    ],
)
def test_the_hour_of_a_day(zone: str, at_hour: int, day: str, utc: str) -> None:
    policy = ResetPolicy(mode=ResetMode.DAILY, at_hour=at_hour, timezone=zone)
    moment = ms(utc)
    assert latest_hour(policy, moment) == moment
    assert latest_hour(policy, moment - 1) < moment
    assert due(moment - 1, policy, moment) is EndReason.DAILY
    assert datetime.fromtimestamp(moment / 1000, ZoneInfo(zone)).date().isoformat() == day


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("at_hour", [0, 1, 2, 3, 4, 23])
def test_every_day_of_a_year_has_exactly_one_reset(zone: str, at_hour: int) -> None:
    policy = ResetPolicy(mode=ResetMode.DAILY, at_hour=at_hour, timezone=zone)
    at, end = ms("2024-01-01T00:30"), ms("2025-01-01T00:30")
    resets: list[int] = []
    while (at := next_reset(at, policy, at) or 0) < end:
        resets.append(at)
    assert len(resets) == 366
    assert {later - earlier for earlier, later in pairwise(resets)} <= {
        DAY + shift * 30 * MINUTE for shift in (-2, -1, 0, 1, 2)
    }


# --- overrides ----------------------------------------------------------------------------------------------------------------

DEFAULT = ResetPolicy()
GROUP = SessionKey.parse("agent:main:telegram:group:-1001")
TABLE = [
    Override(chat=ChatKind.GROUP, at_hour=1),
    Override(platform="telegram", at_hour=2),
    Override(platform="telegram", chat=ChatKind.GROUP, at_hour=3),
    Override(key="agent:main:telegram:group:-100*", at_hour=5),
]


@pytest.mark.parametrize("kept", [1, 2, 3, 4])
def test_the_most_specific_override_wins_in_any_order(kept: int) -> None:
    for overrides in (TABLE[:kept], TABLE[:kept][::-1]):
        policy, override = policy_for(GROUP, DEFAULT, overrides)
        assert override is TABLE[kept - 1]
        assert policy == replace(DEFAULT, at_hour=TABLE[kept - 1].at_hour)


def test_of_equals_the_first_wins() -> None:
    overrides = [Override(platform="telegram", at_hour=1), Override(platform="telegram", at_hour=2)]
    assert policy_for(GROUP, DEFAULT, overrides)[0].at_hour == 1


def test_what_an_override_leaves_out_stays() -> None:
    default = ResetPolicy(mode=ResetMode.IDLE, idle_minutes=5, at_hour=7, timezone="Europe/London", notify=False)
    policy, _ = policy_for(GROUP, default, [Override(platform="telegram", notify=True)])
    assert policy == replace(default, notify=True)


@pytest.mark.parametrize(
    "key", ["agent:main:cli:1", "agent:main:api:laptop:x", "agent:main:thread:t", "agent:main:job:j"]
)
def test_only_an_override_that_names_them_resets_what_no_chat_carries(key: str) -> None:
    session_key = SessionKey.parse(key)
    assert policy_for(session_key, DEFAULT, [])[0].mode is ResetMode.NONE
    assert policy_for(session_key, DEFAULT, TABLE)[0].mode is ResetMode.NONE
    for naming in (Override(key="agent:main:*"), Override(platform=session_key.scope)):
        policy, override = policy_for(session_key, DEFAULT, [naming])
        assert (policy, override) == (DEFAULT, naming)


@pytest.mark.parametrize(
    ("pattern", "key", "fits"),
    [
        ("agent:main:telegram:group:*", "agent:main:telegram:group:-1", True),
        ("agent:main:telegram:group:-1", "agent:main:telegram:group:-1", True),
        ("agent:main:telegram:group:-1", "agent:main:telegram:group:-12", False),
        ("agent:main:api:laptop:[x]", "agent:main:api:laptop:[x]", True),
        ("agent:main:api:laptop:[x]", "agent:main:api:laptop:x", False),
        ("agent:main:api:laptop:[!x]*", "agent:main:api:laptop:[!x]y", True),
        ("AGENT:main:*", "agent:main:cli:1", False),
        ("agent:main:api:laptop:a?", "agent:main:api:laptop:ab", False),
        ("agent:main:api:laptop:a?", "agent:main:api:laptop:a?", True),
    ],
)
def test_only_the_star_is_a_wildcard_in_keys(pattern: str, key: str, *, fits: bool) -> None:
    assert Override(key=pattern).matches(SessionKey.parse(key)) == fits


@given(st.text(min_size=1, max_size=20))
def test_a_key_without_stars_fits_itself(session: str) -> None:
    assume("*" not in session)
    key = SessionKey.api("laptop", session)
    assert Override(key=str(key)).matches(key)


def test_a_year_of_minutes_agrees_with_the_calendar() -> None:
    """The slow way: daily is due when local wall clocks have passed the hour since the last message."""
    zone = ZoneInfo(LONDON.timezone)
    last = datetime(2025, 3, 29, 12, 0, tzinfo=zone)
    for hours in range(24 * 3):
        now = (last.astimezone(UTC) + timedelta(hours=hours)).astimezone(zone)
        passed_hour = now >= datetime(2025, 3, 30, 4, 0, tzinfo=zone)
        assert (due(int(last.timestamp() * 1000), LONDON, int(now.timestamp() * 1000)) is not None) == passed_hour
