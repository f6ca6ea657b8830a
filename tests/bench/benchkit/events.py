"""What a run's event log says about time."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path


def seconds_of_work(runs: Path) -> float:
    """From the Start to the end of the last replica: neither the start of processes nor their end."""
    log = next(runs.glob("*/events.log")).read_text()
    begun, *_ = re.findall(r"^(\S+) Start$", log, re.MULTILINE)
    *_, ended = re.findall(r"^(\S+) finished ", log, re.MULTILINE)
    return (moment(ended) - moment(begun)).total_seconds()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
