"""The errors of stored state. Every message is a sentence for a person and says what to do."""


class StateError(Exception):
    """Base class. `exit_code` is the exit code of a command that ends with it."""

    exit_code = 1


class NotFound(StateError):
    """Nothing has this id."""


class Ambiguous(StateError):
    """A prefix fits several ids."""


class Unusable(StateError):
    """The database or the home cannot be used as it is: damaged, unreadable, read-only, full, of another program."""


class DatabaseUnavailable(Unusable):
    """The database cannot be used for now: its disk is full, its server is away, or another program holds it. The
    same call works again later."""


class ReadOnly(Unusable):
    """The database can be read but not written."""


class NewerSchema(Unusable):
    """A newer version wrote this database and does not allow this version to use it."""

    exit_code = 2


class OlderSchema(Unusable):
    """The database is from before the oldest schema that this version can upgrade."""

    exit_code = 2


class ForeignHome(Unusable):
    """The home belongs to another program."""

    exit_code = 2


class Busy(StateError):
    """Something that is going on does not allow this now."""


class MayNotApprove(StateError):
    """Whoever answered may not decide what a tool may do. `about`: the question, as the audit names it."""

    def __init__(self, about: str) -> None:
        super().__init__("The run waits for an approval, which takes a key with the scope approve.")
        self.about = about


class DayLimitReached(StateError):
    """Somebody has used what they may use in a day. `which`: `messages` or `tokens`; `most`: how many these are; `seconds`: until it goes on."""

    def __init__(self, who: str, which: str, *, most: int, day: str, seconds: int) -> None:
        super().__init__(f"The {most:,} {which} for today are used. It goes on at 00:00 UTC; an admin can raise it.")
        self.who = who
        self.which = which
        self.most = most
        self.day = day
        self.seconds = seconds


class LeaseLost(StateError):
    """Another worker has taken the run over. This one must stop at once and write nothing more."""


class Invalid(StateError):
    """The caller asked for something impossible."""

    exit_code = 2
