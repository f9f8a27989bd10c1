"""Configures logging: events with stable names, one line each, secrets redacted in one place."""

import contextlib
import logging
import logging.handlers
import os
import re
import sys
import time
from collections.abc import Generator, Mapping, MutableMapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal

from gateway.observe.redaction import redact


@contextlib.contextmanager
def _absent(module: str) -> Generator[None]:
    """Makes `module` look as if it were not installed while the block lasts."""
    before = {module: sys.modules[module]} if module in sys.modules else {}
    sys.modules[module] = None  # type: ignore[assignment]  # how Python notes that there is none
    try:
        yield
    finally:
        del sys.modules[module]
        sys.modules.update(before)


with _absent("rich"):  # structlog would load it, with pygments 6 MB, for tracebacks that we print plainly
    import structlog

get_logger = structlog.get_logger

_OWN = ("gateway", "adapters", "sessions")
_REPEAT_SECONDS = 60
_MOST_KNOWN = 1_000


def _redact_event(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = _visible(redact(value))
        elif isinstance(value, BaseException):
            event[name] = _visible(redact(f"{type(value).__name__}: {value}"))
    return event


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _visible(value: str) -> str:
    """Writes control characters out: part of a log line may come from anybody."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", value)


def _redact_line(_: Any, __: str, line: str) -> str:
    """Redacts what was inside of lists and objects."""
    return redact(line)


def configure(
    level: str = "info",
    folder: Path | None = None,
    *,
    shown: str = "",
    colors: bool | None = None,
    form: Literal["console", "json"] = "console",
    worker: int | None = None,
) -> None:
    """Writes logs to standard error (`shown`: only from this level on), and into `folder` when one is given: seven files of 10 MB. `worker`: the
    number of this process among several of one home, which stands in each line and in the name of its file.

    Libraries log from WARNING on. Where standard error is the journal, each line begins with its priority and has no time of its own.
    """
    if worker is not None:
        structlog.contextvars.bind_contextvars(worker=worker)
    journal = is_journal(sys.stderr, os.environ)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _redact_event,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # tests and commands configure it more than once
    )
    colored = sys.stderr.isatty() if colors is None else colors
    style = "json" if form == "json" else "journal" if journal else "colored" if colored else "plain"
    root = logging.getLogger()
    root.handlers = [_handler(logging.StreamHandler(), shared, style, priorities=journal)]
    root.handlers[0].setLevel(shown.upper() or logging.NOTSET)
    if folder is not None:
        name = "hermes.log" if worker is None else f"hermes-{worker}.log"
        root.addHandler(_handler(_private_file(folder / name), shared, "json" if form == "json" else "plain"))
    # For libraries: at info some of them write every address that they call, with the tokens in it.
    root.setLevel(logging.WARNING)
    for name in _OWN:
        logging.getLogger(name).setLevel(level.upper())


def configure_quiet() -> None:
    """For a command that says in its own words what goes wrong: writes logs only where HERMES_DEBUG is set."""
    configure("warning" if os.environ.get("HERMES_DEBUG") else "critical")


def is_journal(stream: Any, environ: Mapping[str, str]) -> bool:
    """Returns whether the stream is the one that systemd connected to its journal."""
    # As systemd.exec(5) says: the variable alone proves nothing, because children inherit it with their output redirected.
    try:
        stat = os.fstat(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}"


def _private_file(path: Path) -> logging.Handler:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    handler = _PrivateFile(path, maxBytes=10_000_000, backupCount=6, encoding="utf-8")
    path.chmod(0o600)  # it may be an older version's
    return handler


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """A rotating file that only the owner can read, also after rotation."""

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), encoding=self.encoding)


class _Repeats(logging.Filter):
    """Lets a library say the same at most once a minute: out of open files, asyncio says so 128 times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] in _OWN:
            return True
        cause = repr(record.exc_info[1]) if record.exc_info else ""
        key = (record.name, str(record.msg).partition("\n")[0], cause)
        now = time.monotonic()
        if now < self._said.get(key, 0.0):
            return False
        if len(self._said) > _MOST_KNOWN:  # forgetting all only lets some lines through once more
            self._said.clear()
        self._said[key] = now + _REPEAT_SECONDS
        return True


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Renders a line once, for all handlers; one that rotates asks twice. `priorities`: for the journal, in front of every line."""

    def __init__(self, processors: list[Any], shared: list[Any], style: str, *, priorities: bool) -> None:
        super().__init__(processors=processors, foreign_pre_chain=shared)
        self._slot = f"rendered_{style}"
        self._priorities = priorities

    def format(self, record: logging.LogRecord) -> str:
        line: str | None = record.__dict__.get(self._slot)
        if line is None:
            line = record.__dict__[self._slot] = super().format(record)
        if not self._priorities:
            return line
        mark = f"<{_priority(record.levelno)}>"
        return "\n".join(f"{mark}{part}" for part in line.split("\n"))


def _priority(level: int) -> int:
    """Returns syslog's number of a level: 7 debug, 6 info, 4 warning, 3 error, 2 critical."""
    return next(number for floor, number in ((50, 2), (40, 3), (30, 4), (20, 6), (0, 7)) if level >= floor)


def _handler(handler: logging.Handler, shared: list[Any], style: str, *, priorities: bool = False) -> logging.Handler:
    processors: list[Any] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        *_renderers(style),
        _redact_line,
    ]
    handler.addFilter(_Repeats())
    handler.setFormatter(_Formatter(processors, shared, style, priorities=priorities))
    return handler


def _renderers(style: str) -> list[Any]:
    if style == "json":
        return [structlog.processors.JSONRenderer(ensure_ascii=False, default=str)]
    console = structlog.dev.ConsoleRenderer(
        colors=style == "colored", exception_formatter=structlog.dev.plain_traceback, timestamp_key="timestamp"
    )
    return [_without_time, console] if style == "journal" else [console]


def _without_time(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Removes the time, as the journal has its own."""
    event.pop("timestamp", None)
    return event
