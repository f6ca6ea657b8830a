"""The functions that the workloads call for each tuple, the same for every side; they need nothing but Python."""

from __future__ import annotations


def remade(text: str) -> str:
    """W3: some work on short texts, about a microsecond."""
    first, second, third = text.split(" ")
    return f"{third}-{second[::-1]}-{first.upper()}"[:24]


def tagged(number: int, text: str) -> tuple[int, str]:
    """``remade`` as a function of the tuple."""
    return number, remade(text)
