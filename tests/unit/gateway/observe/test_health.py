"""Time that passes without the process: a stop signal, a suspended machine, a clock that is set."""

from gateway.observe.health import LONGEST_GAP_MS, Standstills
from tests.conftest import HandClock

HOUR = 3_600_000


def _watched(clock: HandClock, seconds: int, found: Standstills) -> None:
    for _ in range(seconds):
        clock.now += 1_000
        found.check()


def test_usual_time_passes_as_the_clock_says():
    clock = HandClock()
    began, found = clock.now, Standstills(clock)
    found.check()
    _watched(clock, 30, found)
    assert found.elapsed(began, clock.now) == 30_000


def test_an_hour_of_standing_still_is_left_out():
    clock = HandClock()
    began, found = clock.now, Standstills(clock)
    found.check()
    _watched(clock, 5, found)
    clock.now += HOUR
    assert found.elapsed(began, clock.now) == 5_000  # asked before the next look
    _watched(clock, 5, found)
    assert found.elapsed(began, clock.now) == 10_000


def test_what_began_after_it_is_counted_whole():
    clock = HandClock()
    found = Standstills(clock)
    found.check()
    clock.now += HOUR
    found.check()
    began = clock.now
    _watched(clock, 7, found)
    assert found.elapsed(began, clock.now) == 7_000


def test_a_clock_that_is_set_back_takes_nothing_away():
    clock = HandClock()
    began, found = clock.now, Standstills(clock)
    found.check()
    clock.now -= HOUR
    assert found.elapsed(began, clock.now) == 0
    began = clock.now
    _watched(clock, 3, found)
    assert found.elapsed(began, clock.now) == 3_000


def test_a_busy_event_loop_is_no_standstill():
    clock = HandClock()
    began, found = clock.now, Standstills(clock)
    found.check()
    clock.now += LONGEST_GAP_MS
    assert found.elapsed(began, clock.now) == LONGEST_GAP_MS
