"""What a topology must bring out, worked out by the simplest means: plain tuples, one operator after the other.

It shares nothing with the core but the plan: no merge, no packing, no kernels. So a mistake in one of those cannot
hide here. It knows the operators that scenarios are made of and no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dadstorm.core.rows import Rows
from dadstorm.plan import Operator, Plan
from dadstorm.simulator.disk import Row


def expected(plan: Plan, records: Mapping[str, Rows]) -> dict[str, list[Row]]:
    """Every row of each sink, as (seq, sub, fields…), by the sink's name."""
    made: dict[str, list[Row]] = {}
    for operator in plan.operators:
        if operator.kind == "source":
            made[operator.name] = plain(records[operator.name])
        else:
            made[operator.name] = _outputs(operator, _merged(operator, made))
    return {operator.name: made[operator.name] for operator in plan.operators if operator.kind == "sink"}


def plain(rows: Rows) -> list[Row]:
    columns = [column.to_pylist() for column in rows.data.columns]
    return list(zip(rows.seq.tolist(), rows.sub.tolist(), *columns, strict=True))


def _merged(operator: Operator, made: Mapping[str, Sequence[Row]]) -> list[Row]:
    """All input in ID order; the input's number is one more level of ``sub``."""
    rows: list[tuple[int, int, Row]] = []
    for index, link in enumerate(operator.inputs):
        for seq, sub, *fields in made[link.operator]:
            assert isinstance(seq, int) and isinstance(sub, int)
            entered = (sub * 2**link.align) * 2**operator.input_bits + index
            rows.append((seq, entered, (seq, entered, *fields)))
    return [row for _, _, row in sorted(rows, key=lambda one: one[:2])]


def _outputs(operator: Operator, rows: Sequence[Row]) -> list[Row]:
    if operator.kind in ("sink", "dup"):
        return list(rows)
    if operator.kind == "filter":
        (condition,) = operator.params["conditions"]
        assert (condition["field"], condition["op"]) == (0, "!=")
        return [row for row in rows if row[2] != condition["value"]]
    if operator.kind == "split":
        return _split(operator, rows)
    seen: dict[object, int] = {}
    found: list[Row] = []
    for row in rows:
        seen[row[2]] = seen.get(row[2], 0) + 1
        if operator.kind == "count":
            found.append((row[0], row[1], row[2], seen[row[2]]))
        elif seen[row[2]] == 1:
            assert operator.kind == "uniq"
            found.append(row)
    return found


def _split(operator: Operator, rows: Sequence[Row]) -> list[Row]:
    found: list[Row] = []
    for seq, sub, text, *rest in rows:
        assert isinstance(sub, int) and isinstance(text, str)
        for ordinal, word in enumerate(text.split()):
            found.append((seq, sub * 2**operator.output_bits + ordinal, word, *rest))
    return found
