"""The functions that the workloads call for each tuple, the same for every side; they need nothing but Python."""

from __future__ import annotations

import time


def remade(text: str) -> str:
    """W3: some work on short texts, about a microsecond."""
    first, second, third = text.split(" ")
    return f"{third}-{second[::-1]}-{first.upper()}"[:24]


def tagged(number: int, text: str) -> tuple[int, str]:
    """``remade`` as a function of the tuple."""
    return number, remade(text)


def same(number: int, text: str) -> tuple[int, str]:
    """The least that a function can do."""
    return number, text


def slow(number: int, *, seconds: float) -> int:
    """Waits, as one that asks somebody else over a network would."""
    time.sleep(seconds)
    return number
