"""What is known of models that are away."""

from gateway.runs.outages import LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS, TRY_MS, ModelOutages


def test_after_the_first_failure_nobody_asks_until_it_is_time_and_then_one():
    outages = ModelOutages()
    assert outages.why_not_to_ask(None, 0) is None
    outages.mark_away(None, "gone", 1_000)
    assert outages.why_not_to_ask(None, 1_001) == "gone"
    assert outages.why_not_to_ask("another", 1_001) is None
    look = outages.next_try(None, 1_001)
    assert look == 1_000 + SHORTEST_PAUSE_MS
    assert outages.why_not_to_ask(None, look) is None
    assert outages.why_not_to_ask(None, look) == "gone"
    assert outages.why_not_to_ask(None, look + TRY_MS) is None  # whoever looked has not come back


def test_the_pauses_grow_to_a_bound():
    outages, now, pauses = ModelOutages(), 0, list[int]()
    for _ in range(30):
        outages.mark_away(None, "gone", now)
        pauses.append(outages.next_try(None, now) - now)
        now += pauses[-1]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS)


def test_an_answer_ends_it_once():
    outages = ModelOutages()
    outages.mark_away(None, "gone", 0)
    assert outages.mark_back(None)
    assert not outages.mark_back(None)
    assert outages.why_not_to_ask(None, 1) is None


def test_a_clock_that_was_set_back_holds_nobody_up():
    outages = ModelOutages()
    outages.mark_away(None, "gone", 10_000_000)
    assert outages.why_not_to_ask(None, 5) is None
    assert outages.next_try(None, 5) <= 5 + LONGEST_PAUSE_MS
