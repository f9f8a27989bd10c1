"""Log lines are events with names that stay. One place redacts, whoever logs."""

import contextlib
import logging
import logging.handlers
import sys
from collections.abc import Generator, MutableMapping
from pathlib import Path
from typing import Any

from gateway.observe.redaction import redact


@contextlib.contextmanager
def _absent(module: str) -> Generator[None]:
    """As if it were not installed, for whoever asks meanwhile."""
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


def _redact_event(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = redact(value)
        elif isinstance(value, BaseException):
            event[name] = redact(f"{type(value).__name__}: {value}")
    return event


def _redact_line(_: Any, __: str, line: str) -> str:
    """What stood inside of lists and objects."""
    return redact(line)


def configure(level: str = "info", folder: Path | None = None, *, shown: str = "", colors: bool | None = None) -> None:
    """To standard error (`shown`: only from this level on), and into `folder` when one is given: seven files of 10 MB.

    Libraries log from WARNING on.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _redact_event,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    colored = sys.stderr.isatty() if colors is None else colors
    root = logging.getLogger()
    root.handlers = [_handler(logging.StreamHandler(), shared, colored=colored)]
    root.handlers[0].setLevel(shown.upper() or logging.NOTSET)
    if folder is not None:
        folder.mkdir(mode=0o700, exist_ok=True)
        file = logging.handlers.RotatingFileHandler(
            folder / "hermes.log", maxBytes=10_000_000, backupCount=6, encoding="utf-8"
        )
        root.addHandler(_handler(file, shared, colored=False))
    root.setLevel(logging.WARNING)
    for name in ("gateway", "adapters", "sessions"):
        logging.getLogger(name).setLevel(level.upper())


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Renders a line once, for all handlers; one that rotates asks twice."""

    def __init__(self, processors: list[Any], shared: list[Any], look: str) -> None:
        super().__init__(processors=processors, foreign_pre_chain=shared)
        self._slot = f"rendered_{look}"

    def format(self, record: logging.LogRecord) -> str:
        line: str | None = record.__dict__.get(self._slot)
        if line is None:
            line = record.__dict__[self._slot] = super().format(record)
        return line


def _handler(handler: logging.Handler, shared: list[Any], *, colored: bool) -> logging.Handler:
    renderer = structlog.dev.ConsoleRenderer(colors=colored, exception_formatter=structlog.dev.plain_traceback)
    processors: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer, _redact_line]
    handler.setFormatter(_Formatter(processors, shared, "colored" if colored else "plain"))
    return handler
