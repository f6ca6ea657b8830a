"""How a process ended, in words."""

from __future__ import annotations

import signal


def describe(status: int) -> str:
    """An exit status; a negative one is the signal that ended the process."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"killed by signal {-status}"
