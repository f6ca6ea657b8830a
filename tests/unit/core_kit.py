"""What the tests of the core share: rows and tiles from a few numbers, small plans, a machine's whole state."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dadstorm.core.holder import Holder
from dadstorm.core.keeper import SendCopy, SendSettle
from dadstorm.core.messages import Peer
from dadstorm.core.outlet import Send
from dadstorm.core.replica import ReplicaMachine
from dadstorm.core.rows import Rows
from dadstorm.core.tile import Tile
from dadstorm.operators import make_kernel
from dadstorm.plan import Field, Input, Operator, Plan, Replica, Routing

NUMBER = (Field("n", "int"),)
SCHEMA = pa.schema([("n", pa.int64())])
HERE = (Replica("localhost"),)


def rows(*ids: int | tuple[int, int], values: Sequence[int] | None = None) -> Rows:
    """Rows with these IDs (a bare seq has the sub 0), in this order; the field is the row's number unless said."""
    pairs = [one if isinstance(one, tuple) else (one, 0) for one in ids]
    numbers = range(len(pairs)) if values is None else values
    return Rows(
        np.array([seq for seq, _ in pairs], dtype=np.int64),
        np.array([sub for _, sub in pairs], dtype=np.int64),
        pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=SCHEMA),
    )


def tile(lo: int, hi: int, *ids: int | tuple[int, int]) -> Tile:
    return Tile(lo, hi, rows(*ids))


def ids(found: Rows) -> list[tuple[int, int]]:
    return list(zip(found.seq.tolist(), found.sub.tolist(), strict=True))


def seqs(found: Rows) -> list[int]:
    return [int(seq) for seq in found.seq]


def numbers(found: Rows) -> list[int]:
    return [int(value) for value in found.data.column(0).to_pylist()]


def ranges(sends: Iterable[Any]) -> list[tuple[int, int, list[int]]]:
    """Of each message its range and the seqs it carries."""
    return [(send.message.lo, send.message.hi, seqs(send.rows)) for send in sends if isinstance(send, Send)]


def operator(
    name: str,
    kind: str,
    inputs: Sequence[str | Input] = (),
    slices: int = 1,
    replicas: int = 1,
    routing: Routing | None = None,
    **more: Any,
) -> Operator:
    """An operator over one number."""
    links = tuple(one if isinstance(one, Input) else Input(one) for one in inputs)
    return Operator(
        name, kind, more.pop("params", {}), links, more.pop("fields", NUMBER), slices, HERE * replicas,
        routing or Routing(), input_bits=(len(links) - 1).bit_length() if links else 0, **more,
    )  # fmt: skip


def plan_of(*operators: Operator, **settings: Any) -> Plan:
    return Plan("test", operators, **settings)


def unborn(plan: Plan, name: str, replica: int = 0, incarnation: int = 0) -> ReplicaMachine:
    """A replica that has not begun yet."""
    return ReplicaMachine(plan, Peer(plan.index(name), replica), lambda one: make_kernel(one, plan), incarnation)


def machine(plan: Plan, name: str, replica: int = 0) -> ReplicaMachine:
    """A replica in its first incarnation, resumed at the start of the line."""
    made = unborn(plan, name, replica)
    list(made.begin())
    return made


class Kept:
    """A replica together with those who hold the copies of its slices: none of them ever fails."""

    def __init__(self, plan: Plan, name: str, replica: int = 0) -> None:
        self.machine = unborn(plan, name, replica)
        self._holders: dict[Peer, Holder] = {}
        self.do(self.machine.begin())

    def do(self, actions: Iterable[Any]) -> list[Any]:
        """Give copies to their holders and the answers back until there is nothing left to say; all other actions."""
        others, waiting = [], deque(actions)
        while waiting:
            action = waiting.popleft()
            if isinstance(action, SendCopy | SendSettle):
                holder = self._holders.setdefault(action.to, Holder(action.to.replica, 0))
                copy = isinstance(action, SendCopy)
                held = holder.copy(action.message, action.table) if copy else holder.settle(action.message)
                waiting.extend(self.machine.handle(held))
            else:
                others.append(action)
        return others


def mark_at(cut: int) -> dict[str, int]:
    """What a reader would need in order to go on at a cut."""
    return {"cut": cut}


def everything(thing: Any) -> Any:
    """An object and all that it holds, as plain data that can be compared."""
    if isinstance(thing, dict):
        return {repr(key): everything(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple | deque):
        return [everything(item) for item in thing]
    if isinstance(thing, np.ndarray):
        return thing.tolist()
    if isinstance(thing, pa.RecordBatch):
        return thing.to_pylist()
    if isinstance(thing, Rows):
        return [everything(part) for part in (thing.seq, thing.sub, thing.data)]
    if thing is None or isinstance(thing, msgspec.Struct | pa.Schema | enum.Enum | int | str):
        return repr(thing)
    if is_dataclass(thing):
        return {one.name: everything(getattr(thing, one.name)) for one in fields(thing)}
    if type(thing).__module__.startswith("dadstorm."):
        return {name: everything(value) for name, value in vars(thing).items()}
    return type(thing).__name__
