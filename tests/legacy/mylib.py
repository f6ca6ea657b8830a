"""The course's custom library as Python, and a few methods of other shapes."""

from pathlib import Path

from dadstorm.custom import operator


class QueryFollowersFile:
    """Looks the sender of a tweet up among those who are followed."""

    def __init__(self) -> None:
        self._followers: dict[str, list[str]] = {}
        for line in (Path(__file__).parent / "followers.dat").read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("%"):
                followed, *followers = (name.strip() for name in line.split(","))
                self._followers.setdefault(followed, []).extend(followers)

    def getFollowers(self, t: list[str]) -> list[list[str]]:
        return [[follower] for follower in self._followers.get(t[1], [])]


class OutputOperator:
    """Writes down what passes, in the folder in which it runs."""

    def CustomOperation(self, t: list[str]) -> list[list[str]]:
        with open("output.txt", "a", encoding="utf-8") as file:
            file.writelines(f"{field}\n" for field in t)
        return [t]


class IdentityOperator:
    def CustomOperation(self, t: list[str]) -> list[list[str]]:
        return [t]


class Shapes:
    def Backwards(self, t: list[str]) -> list[list[str]]:
        return [t[::-1]]

    def Nothing(self, t: list[str]) -> None:
        return None

    def Numbers(self, t: list[str]) -> list[list[object]]:
        return [[len(t), 0.5], [], ["", "x"]]

    def Wide(self, t: list[str]) -> list[list[str]]:
        """As many fields as the operator that asks for the last of them makes room for."""
        return [[str(number) for number in range(70)]] if t[0] == "1" else []

    @operator(fields=["first", "last"], max_outputs=1)
    def Declared(self, t: list[str]) -> list[list[str]]:
        return [[t[0], t[-1]]]
