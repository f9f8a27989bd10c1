"""Compares what a run has used with its limits."""

from dataclasses import dataclass, field

from sessions.jobs import JobLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """What a run has used. `today`: tokens in and out of all runs of the day."""

    steps: int
    tokens: int
    seconds: float
    today: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """The limits of a run, and of the jobs that it may make. 0 means no limit for values per day."""

    steps: int = 60
    tokens: int = 1_000_000
    seconds: int = 3_600
    tokens_per_day: int = 0
    spend_per_day: float = 0.0
    input_price: float = 0.0
    output_price: float = 0.0
    jobs: JobLimits = field(default_factory=JobLimits)

    @property
    def per_day(self) -> bool:
        return bool(self.tokens_per_day or self.spend_per_day)

    def reached(self, used: BudgetUse) -> str | None:
        """Returns the limit that allows no further step, in words for a person; None: another step is allowed."""
        read, written = used.today
        cost = (read * self.input_price + written * self.output_price) / 1_000_000
        if self.tokens_per_day and read + written >= self.tokens_per_day:
            return f"{self.tokens_per_day:,} tokens a day"
        if self.spend_per_day and cost >= self.spend_per_day:
            return f"{self.spend_per_day:g} a day"
        if used.steps >= self.steps:
            return f"{self.steps} steps"
        if used.tokens >= self.tokens:
            return f"{self.tokens:,} tokens"
        if used.seconds >= self.seconds:
            return f"{self.seconds // 60} minutes"
        return None
