"""Which days a text names."""

from datetime import UTC, date, datetime

import pytest

from sessions.search.days import named_days

NOW = int(datetime(2026, 5, 11, 9, tzinfo=UTC).timestamp() * 1000)  # a Monday


def days(text: str, timezone: str = "UTC") -> list[str]:
    return [str(datetime.fromtimestamp(begins / 1000, UTC).date()) for begins, _ in named_days(text, NOW, timezone)]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("what did I do on 4 May?", "2026-05-04"),
        ("on the 4th of May", "2026-05-04"),
        ("May 4th, in the evening", "2026-05-04"),
        ("Sept. 2, 2025", "2025-09-02"),
        ("on 24 December", "2025-12-24"),  # the last one
        ("2026-05-06, was that a Wednesday?", "2026-05-06"),
        ("what did we say yesterday?", "2026-05-10"),
        ("the day before yesterday", "2026-05-09"),
        ("last Monday", "2026-05-04"),
        ("last Tuesday", "2026-05-05"),
        ("three days ago", "2026-05-08"),
        ("a week ago", "2026-05-04"),
    ],
)
def test_a_day_that_is_named(text: str, day: str) -> None:
    assert days(text) == [day]


@pytest.mark.parametrize("text", ["31 April", "on 12 May 2026", "in March", "2026-13-40", "tomorrow", "0 days", ""])
def test_what_is_no_day_until_today_names_none(text: str) -> None:
    assert days(text) == []


def test_a_day_begins_and_ends_where_the_people_are() -> None:
    [(begins, ends)] = named_days("on 29 March", NOW, "Europe/Berlin")
    assert ends - begins == 23 * 3_600_000, "the clocks go forward"
    assert datetime.fromtimestamp(begins / 1000, UTC).date() == date(2026, 3, 28)
