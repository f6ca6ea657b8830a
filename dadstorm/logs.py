"""Structured logs: one call per process, then ``logs.get_logger()`` anywhere.

In a file a log is JSON lines, one object an event: logs of many processes can be merged by time and searched. On a
terminal it is coloured text. A line is handed over in a single write to a file opened for appending: lines of
several processes never mix, and a killed process loses none that it had logged.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Any, Literal

import msgspec

if "rich" in sys.modules:
    import structlog
else:
    # For coloured tracebacks, which we do not show, structlog would take this, and most of its time to load.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]

Level = Literal["debug", "info", "warning", "error"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_file: IO[bytes] | None = None
"""The log file of this process, kept so that configuring anew closes it."""


def get_logger() -> Any:
    """A logger for a module, which may be made before anything is configured."""
    return structlog.get_logger()


def configure(process: str, file: str | None = None, level: Level = "info") -> None:
    """Send this process's log to a file as JSON lines, or (no file) to standard error as text.

    ``process`` names the writer in every line. A forked process calls this again and has a log of its own. Events below
    ``level`` cost a few microseconds, others about ten: log what happens, not what flows.
    """
    global _file
    previous, _file = _file, None
    if file is not None:
        os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
        _file = open(file, "ab", buffering=0)  # noqa: SIM115
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(_text_processors(process) if _file is None else _json_processors(process)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr) if _file is None else _LineLogger.factory(_file),
        # Caching would tie the loggers of a forked process to its parent's file.
        cache_logger_on_first_use=False,
    )
    if previous is not None:
        previous.close()


def _text_processors(process: str) -> list[Any]:
    return [
        _named(process),
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
        ),
    ]


def _json_processors(process: str) -> list[Any]:
    return [
        structlog.processors.format_exc_info,
        _named(process),
        structlog.processors.JSONRenderer(serializer=_json),
    ]


def _named(process: str) -> Any:
    """A processor that adds who logs, and puts what every line has in front."""
    pid = os.getpid()

    def add(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
        first = {"timestamp": event.pop("timestamp"), "level": event.pop("level"), "event": event.pop("event")}
        return {**first, "process": process, "pid": pid, **event}

    return add


def _json(event: Any, **_: Any) -> bytes:
    """Anything can be logged: what JSON has no form for is written as its ``repr``."""
    try:
        return msgspec.json.encode(event, enc_hook=repr) + b"\n"
    except (TypeError, ValueError, UnicodeEncodeError):
        return msgspec.json.encode({str(key): repr(value) for key, value in event.items()}) + b"\n"


class _LineLogger:
    """Writes each event's bytes at once. A log that cannot be written (disk full) must not stop the stream."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @staticmethod
    def factory(file: IO[bytes]) -> Any:
        logger = _LineLogger(file)
        return lambda *_: logger

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line)
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = exception = _write
