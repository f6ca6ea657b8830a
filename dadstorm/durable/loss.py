"""What to say when every copy of a slice's state is gone: what was lost, and how it would not have been."""

from __future__ import annotations

from dadstorm.core.exchange import Lost
from dadstorm.errors import RunFailed
from dadstorm.plan import Plan


def lost(plan: Plan, action: Lost) -> RunFailed:
    """The end of a run, in words."""
    operator = plan.operators[action.operator]
    begin = "the beginning" if action.wanted == 0 else f"seq {action.wanted}"
    count = len(operator.replicas)
    held = f"its {count} replicas have" if count > 1 else "its replica and the PCS of its host have"
    copies = min(plan.backups or count - 1, count - 1)
    more = "" if copies + 1 >= count else f" or more backups (now {copies})"
    cure = (
        "with durable: DIR in the topology its state is on disk too, and survives this"
        if plan.durable is None
        else f"what {plan.durable.folder} holds of it on its host is older, or on another host: a run whose replicas "
        "move needs a folder that all hosts share"
    )
    return RunFailed(
        f"the state of operator {operator.name}, slice {action.slice}, is lost: all copies of it are gone, because "
        f"{held} died together. It would have to begin again at {begin}, and its input from there up to seq "
        f"{action.kept} has been let go. Run the topology again from the beginning. So that it does not happen again: "
        f"{cure}; and more replicas{more} hold more copies"
    )
