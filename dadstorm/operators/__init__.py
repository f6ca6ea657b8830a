"""The operators' kernels: what FILTER, UNIQ, COUNT, DUP, SPLIT and CUSTOM compute over one slice's rows.

One file per operator. They know nothing of slices, tiles, routing or processes; ``core.kernel`` says what they owe.
"""

from __future__ import annotations

from dadstorm import plan as plans
from dadstorm.core.kernel import Kernel
from dadstorm.custom import load
from dadstorm.operators.count import make_count
from dadstorm.operators.custom_batch import CustomBatch
from dadstorm.operators.custom_keyed import CustomKeyed
from dadstorm.operators.custom_list import listed
from dadstorm.operators.custom_row import CustomRow
from dadstorm.operators.dup import Dup
from dadstorm.operators.filter import Filter
from dadstorm.operators.split import Split
from dadstorm.operators.uniq import Uniq

__all__ = ["make_kernel"]


def make_kernel(operator: plans.Operator, plan: plans.Plan) -> Kernel:
    """A new kernel, without state, for one slice of an operator. Loads the user's code for CUSTOM (UserError if it
    cannot be found)."""
    schema = plan.input_schema(operator)
    if operator.kind == "filter":
        return Filter(operator, schema)
    if operator.kind == "uniq":
        return Uniq(operator, schema)
    if operator.kind == "count":
        return make_count(operator, schema)
    if operator.kind == "dup":
        return Dup(operator)
    if operator.kind == "split":
        return Split(operator, schema)
    if operator.kind == "custom":
        return _make_custom(operator, plan)
    raise ValueError(f"operator {operator.name} is a {operator.kind}, which has no kernel")


def _make_custom(operator: plans.Operator, plan: plans.Plan) -> Kernel:
    schema = plan.input_schema(operator)
    function: object = load(operator.params["function"], [plan.base, *plan.libs])
    if operator.params["mode"] == "keyed":
        assert isinstance(function, type), "the compiler has checked that a keyed operator is a class"
        return CustomKeyed(operator, schema, function)
    assert callable(function)
    if operator.params["mode"] == "batch":
        return CustomBatch(operator, schema, function)
    if operator.params["mode"] == "list":
        return CustomRow(operator, schema, listed(function, len(operator.fields)))
    return CustomRow(operator, schema, function)
