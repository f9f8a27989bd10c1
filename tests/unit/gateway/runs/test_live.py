"""Live events: what those who show a run get to see."""

from gateway.api.openai.agent_calls import TextFeed
from gateway.runs.live import LiveEvent, LiveEvents


def test_a_step_whose_process_was_killed_is_shown_once():
    live, feed, late = LiveEvents(), TextFeed(), TextFeed()
    live.listen("run_1", feed.on_event)

    def happen(*told: str) -> None:
        for text in told:
            live.publish(LiveEvent("run_1", "token" if text else "begun", text))

    happen("", "one ", "two ")
    live.replay("run_1", late.on_event)
    live.listen("run_1", late.on_event)
    happen("", "one ", "two ", "three")
    assert feed.take() == late.take() == "one two three"
