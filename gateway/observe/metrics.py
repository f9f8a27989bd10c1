"""The Prometheus metrics. No label names a user, a chat, a session or a run."""

import asyncio
import time
from collections.abc import Iterator
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.process_collector import ProcessCollector

from gateway.observe.alerts import RecentCalls
from sessions.clock import now_ms
from sessions.gauges import Gauges

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LAG_SECONDS = 0.5
_FAILED = frozenset({"limited", "unreachable", "refused"})
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class TokenCounts(Protocol):
    """The token counts of a model call."""

    @property
    def input_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...


class Metrics:
    """One registry for each daemon. Recording is cheap and never raises."""

    def __init__(self, version: str = "", models: frozenset[str] = frozenset()) -> None:
        disable_created_metrics()  # a second series beside every counter, which nobody asked for
        self.recent_calls = RecentCalls()
        self._models = models
        self._registry = registry = CollectorRegistry()
        self._of_database = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._messages = Counter("hermes_messages", "Messages", ["platform", "direction"], registry=registry)
        self._reply = Histogram(
            "hermes_reply_seconds", "From message to answer", ["platform"], buckets=_SECONDS, registry=registry
        )
        self._runs = Gauge("hermes_runs", "Runs that are not over", ["status"], registry=self._of_database)
        self._ended = Counter("hermes_runs_ended", "Runs that ended", ["reason"], registry=registry)
        self._model = Histogram(
            "hermes_model_request_seconds", "Model calls", ["model", "outcome"], buckets=_SECONDS, registry=registry
        )
        self._tokens = Counter("hermes_model_tokens", "Tokens", ["model", "kind"], registry=registry)
        self._slots = Counter("hermes_job_slots", "Slots of jobs", ["outcome"], registry=registry)
        self._tool = Histogram(
            "hermes_tool_seconds", "Tool calls", ["tool", "outcome"], buckets=_SECONDS, registry=registry
        )
        self._fold = Histogram(
            "hermes_fold_seconds", "Folds of the memory", ["outcome"], buckets=_SECONDS, registry=registry
        )
        self._fold_tokens = Counter("hermes_fold_tokens", "Tokens of folds", ["kind"], registry=registry)
        self._embeddings = Counter("hermes_embeddings", "Calls for embeddings", ["outcome"], registry=registry)
        self._unread = Gauge(
            "hermes_inbox_oldest_seconds", "Age of the oldest unread message", registry=self._of_database
        )
        self._outbox = Gauge(
            "hermes_outbox_messages", "Messages to send", ["platform", "state"], registry=self._of_database
        )
        self._due = Gauge(
            "hermes_outbox_oldest_due_seconds", "How late the oldest message is", registry=self._of_database
        )
        self._platform = Gauge(
            "hermes_platform_last_success_timestamp_seconds", "Last sign of life", ["platform"], registry=registry
        )
        self._up = Gauge("hermes_platform_up", "1: messages come in and can be sent", ["platform"], registry=registry)
        self._lag = Gauge("hermes_event_loop_lag_seconds", "How late the event loop is", registry=registry)
        self._reloaded = Gauge("hermes_config_last_reload_successful", "1: the last one was taken", registry=registry)
        self._reloaded.set(1)
        Gauge("hermes_build_info", "This version", ["version"], registry=registry).labels(version or "unknown").set(1)

    def message(self, platform: str, direction: str) -> None:
        """Counts a message. `direction`: in or out."""
        self._messages.labels(platform, direction).inc()

    def replied(self, platform: str, seconds: float) -> None:
        self._reply.labels(platform).observe(seconds)

    def run_ended(self, reason: str) -> None:
        """Counts a run. `reason`: done, cancelled, budget or error."""
        self._ended.labels(reason).inc()

    def model_called(self, model: str, outcome: str, seconds: float, usage: TokenCounts | None) -> None:
        """Counts a call of a model. Names that are not configured count as `other`."""
        name = model if not self._models or model in self._models else "other"
        self._model.labels(name, outcome).observe(seconds)
        tokens = 0 if usage is None else usage.input_tokens + usage.output_tokens
        self.recent_calls.add(now_ms(), failed=outcome in _FAILED, tokens=tokens)
        if usage is not None:
            self._tokens.labels(name, "input").inc(max(0, usage.input_tokens - usage.cached_tokens))
            self._tokens.labels(name, "cached_input").inc(usage.cached_tokens)
            self._tokens.labels(name, "output").inc(usage.output_tokens)

    def job_slot(self, outcome: str) -> None:
        """Counts a slot: ran, made_up or missed."""
        self._slots.labels(outcome).inc()

    def tool_ran(self, tool: str, outcome: str, seconds: float) -> None:
        self._tool.labels(tool, outcome).observe(seconds)

    def folded(self, outcome: str, seconds: float, input_tokens: int, output_tokens: int) -> None:
        """Counts a fold: done, nothing, repeated, failed or unreachable."""
        self._fold.labels(outcome).observe(seconds)
        self._fold_tokens.labels("input").inc(max(0, input_tokens))
        self._fold_tokens.labels("output").inc(max(0, output_tokens))

    def embedded(self, outcome: str) -> None:
        """Counts a call for embeddings: answered, failed or slow."""
        self._embeddings.labels(outcome).inc()

    def config_reloaded(self, *, taken: bool) -> None:
        self._reloaded.set(1 if taken else 0)

    def platform_seen(self, platform: str, at: float) -> None:
        self._platform.labels(platform).set(at)

    def platform_up(self, platform: str, *, up: bool) -> None:
        self._up.labels(platform).set(1 if up else 0)

    def expose(self, gauges: Gauges | None, now_ms: int, *, worker: int | None = None) -> bytes:
        """Returns the text for the scraper, with these numbers from the database; None: somebody else tells them. `worker`: which of several
        processes of a home this is. Takes milliseconds: call it in a thread.
        """
        own = generate_latest(self._registry if worker is None else _OfWorker(self._registry, str(worker)))
        if gauges is None:
            return own
        # Cleared first: a series that the database has no number for any more would keep its last value.
        self._runs.clear()
        for status in ("running", "waiting_on_human"):
            self._runs.labels(status).set(gauges.runs.get(status, 0))
        self._outbox.clear()
        for (platform, state), count in gauges.outbox.items():
            self._outbox.labels(platform, state).set(count)
        self._unread.set(_age(gauges.oldest_unread, now_ms))
        self._due.set(_age(gauges.oldest_due, now_ms))
        return own + generate_latest(self._of_database)

    def collect(self) -> Iterator[Metric]:
        """Returns all of it, as a registry does."""
        yield from self._registry.collect()
        yield from self._of_database.collect()

    async def watch_loop(self) -> None:
        """Measures the lag of the event loop until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(LAG_SECONDS)
            self._lag.set(max(0.0, time.monotonic() - before - LAG_SECONDS))


class _OfWorker:
    """A registry with a label more, so that what several processes of a home count is told apart."""

    def __init__(self, registry: CollectorRegistry, worker: str) -> None:
        self._registry = registry
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [
                sample._replace(labels={**sample.labels, "worker": self._worker}) for sample in family.samples
            ]
            yield family


def _age(since_ms: int | None, now_ms: int) -> float:
    return 0.0 if since_ms is None else max(0.0, (now_ms - since_ms) / 1000)
