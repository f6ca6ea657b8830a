"""The library of reach.config: what the original had in people.dll."""

from pathlib import Path


class Followers:
    """Who follows whom, by the file beside this module."""

    def __init__(self) -> None:
        self._followers: dict[str, list[str]] = {}
        for line in (Path(__file__).parent / "follows.dat").read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("%"):
                sender, *followers = (name.strip() for name in line.split(","))
                # Who is listed twice has both lists.
                self._followers.setdefault(sender, []).extend(followers)

    def of(self, tweet: list[str]) -> list[list[str]]:
        """One tuple, of one field, for each follower of the tweet's sender."""
        return [[follower] for follower in self._followers.get(tweet[1], [])]
