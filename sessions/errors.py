"""What can go wrong with stored state. Every message is a sentence for a person and says what to do."""


class StateError(Exception):
    """Base of everything here. `exit_code` is what a command line ends with."""

    exit_code = 1


class NotFound(StateError):
    """Nothing has this id."""


class Ambiguous(StateError):
    """A prefix fits several ids."""


class Unusable(StateError):
    """The database or the home cannot be used as it is: damaged, unreadable, read-only, full, of another program."""


class DatabaseUnavailable(Unusable):
    """It cannot be used for now: its disk is full, its server is away, another program holds it. The same call works again later."""


class ReadOnly(Unusable):
    """It can be read, and nothing more."""


class NewerSchema(Unusable):
    """A newer version wrote this database and does not allow this one to work on it."""

    exit_code = 2


class ForeignHome(Unusable):
    """The home belongs to another program."""

    exit_code = 2


class Busy(StateError):
    """Something is going on that does not allow this now."""


class LeaseLost(StateError):
    """Another worker has taken the run over; this one must stop at once and write nothing more."""


class Invalid(StateError):
    """The caller asked for something that makes no sense."""

    exit_code = 2
