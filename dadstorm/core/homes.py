"""Homes: at which replica each slice lives, as far as this replica knows.

At first slices live where the plan puts them. When a replica is lost they are resumed: by a new incarnation of it or,
with ``recovery: spread``, by its peers. Each time a slice is resumed its incarnation grows, and the highest that was
heard of is where it lives: nobody has to agree with anybody. Everything a slice says tells its incarnation, so who has
missed the news learns it from the next message.
"""

from __future__ import annotations

from collections.abc import Iterable

from dadstorm.plan import Plan


class Homes:
    def __init__(self, plan: Plan) -> None:
        self._at = [[(op.home(index), 0) for index in range(op.slices)] for op in plan.operators]

    def replica(self, operator: int, slice_index: int) -> int:
        return self._at[operator][slice_index][0]

    def incarnation(self, operator: int, slice_index: int) -> int:
        """The highest incarnation of the slice that was heard of."""
        return self._at[operator][slice_index][1]

    def at(self, operator: int, replica: int) -> list[int]:
        """The slices that live at a replica."""
        return [index for index, (home, _) in enumerate(self._at[operator]) if home == replica]

    def replicas(self, operator: int) -> list[int]:
        """Every replica of an operator at which slices live."""
        return sorted({home for home, _ in self._at[operator]})

    def moved(self, operator: int, replica: int, slices: Iterable[tuple[int, int]]) -> bool:
        """These (slice, incarnation) live there. True if that is news of any of them."""
        news = False
        for index, incarnation in slices:
            if incarnation > self._at[operator][index][1]:
                self._at[operator][index] = (replica, incarnation)
                news = True
        return news

    def moves(self) -> tuple[tuple[int, int, int, int], ...]:
        """Operator, slice, replica and incarnation of every slice that was resumed."""
        return tuple(
            (operator, index, replica, incarnation)
            for operator, homes in enumerate(self._at)
            for index, (replica, incarnation) in enumerate(homes)
            if incarnation
        )
