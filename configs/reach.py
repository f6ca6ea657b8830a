"""Who follows whom, for the topology beside this module."""

import csv
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def _followers() -> dict[str, list[str]]:
    """Everybody's followers, in the order of the file; read once per process, when first asked for."""
    known: dict[str, list[str]] = defaultdict(list)
    with open(Path(__file__).parent / "reach" / "followers.csv", newline="", encoding="utf-8") as file:
        for user, follower in csv.reader(file):
            known[user].append(follower)
    return dict(known)


def followers(tweet: int, user: str, url: str) -> Iterator[tuple[str]]:
    """One tuple for each follower of the tweet's author."""
    for follower in _followers().get(user, ()):
        yield (follower,)
