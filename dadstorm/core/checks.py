"""Whether a message can be meant for us: what a replica demands of its peers before it changes anything.

The plan says who produces for whom and how many slices everybody has. A message that contradicts it raises
``ProtocolError``: the peer is wrong, not we.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa

from dadstorm.core.line import END, START
from dadstorm.core.messages import Done, Gone, Peer, Reach, Tiles
from dadstorm.core.rows import Rows
from dadstorm.plan import Operator, Plan


class ProtocolError(Exception):
    """A peer sent something that this replica cannot have been sent."""


class Checks:
    def __init__(self, plan: Plan, me: Peer) -> None:
        self._plan = plan
        self._me = me
        self._operator = plan.operators[me.operator]
        self._schema = plan.input_schema(self._operator) if self._operator.inputs else pa.schema([])
        self._no_rows = Rows.empty(self._schema)
        self.producers = [plan.index(link.operator) for link in self._operator.inputs]

    def producer(self, message: Tiles | Done | Gone | Reach) -> Operator:
        """The operator that a message of our input comes from."""
        if message.consumer != self._me.operator or not 0 <= message.input < len(self._operator.inputs):
            raise ProtocolError(f"tiles for operator {message.consumer}, input {message.input}: not ours")
        expected = self.producers[message.input]
        producer = self._plan.operators[expected]
        if message.producer != expected or not 0 <= message.producer_slice < producer.slices:
            raise ProtocolError(f"tiles from operator {message.producer}: not the producer of input {message.input}")
        if not isinstance(message, Gone) and not 0 <= message.replica < len(producer.replicas):
            raise ProtocolError(f"tiles from replica {message.replica} of {producer.name}: there is none")
        return producer

    def consumer(self, consumer: int, slices: Sequence[int], cuts: Sequence[int]) -> Operator:
        """The operator whose slices are named, at these cuts."""
        if not 0 <= consumer < len(self._plan.operators):
            raise ProtocolError(f"operator {consumer}: there is none")
        operator = self._plan.operators[consumer]
        if any(not 0 <= index < operator.slices for index in slices) or any(not START <= cut <= END for cut in cuts):
            raise ProtocolError(f"slices {slices} at {cuts}: not of operator {consumer}")
        return operator

    def slices(self, operator: int, replica: int, slices: Sequence[tuple[int, int]]) -> None:
        """Slices that are said to live at a replica, each with its incarnation."""
        if not 0 <= operator < len(self._plan.operators):
            raise ProtocolError(f"operator {operator}: there is none")
        known = self._plan.operators[operator]
        if not 0 <= replica < len(known.replicas) or any(
            not 0 <= index < known.slices or incarnation < 0 for index, incarnation in slices
        ):
            raise ProtocolError(f"operator {operator}, replica {replica}: cannot have slices {slices}")

    def ring(self, operator: int, replica: int, kind: str) -> None:
        """A message of our own ring, from one of its replicas."""
        if operator != self._me.operator or not 0 <= replica < len(self._operator.replicas):
            raise ProtocolError(f"a {kind} of operator {operator}, replica {replica}: not our ring")

    def tiles(self, message: Tiles, rows: Rows | None) -> Rows:
        """The rows of tiles, under one schema whichever input they came by: inputs agree in types, not in names."""
        body = self._under_our_schema(rows)
        if not START <= message.lo < message.hi <= END or len(message.slices) != len(message.counts):
            raise ProtocolError(f"tiles over [{message.lo}, {message.hi}): not a range of the line")
        if min(message.counts, default=0) < 0 or sum(message.counts) != len(body):
            raise ProtocolError(f"tiles announce {sum(message.counts)} rows and carry {len(body)}")
        if len(set(message.slices)) != len(message.slices):
            raise ProtocolError(f"tiles for slices {message.slices}: one is named twice")
        if not all(0 <= index < self._operator.slices for index in message.slices):
            raise ProtocolError(f"tiles for slices {message.slices}: there are {self._operator.slices}")
        if len(body):
            ends = [end for end, count in zip(accumulate(message.counts), message.counts, strict=True) if count]
            if not _in_order(body, ends):
                raise ProtocolError(f"tiles over [{message.lo}, {message.hi}) carry rows out of the order of IDs")
            first = min(int(body.seq[start]) for start in [0, *ends[:-1]])
            last = max(int(body.seq[end - 1]) for end in ends)
            if not message.lo <= first <= last < message.hi:
                raise ProtocolError(f"tiles over [{message.lo}, {message.hi}) carry rows outside of it")
        return body

    def _under_our_schema(self, rows: Rows | None) -> Rows:
        if rows is None:
            return self._no_rows
        found = rows.data.schema
        if found.equals(self._schema):
            return rows
        if found.types != self._schema.types:
            raise ProtocolError(f"tiles carry fields of the types {found.types}, not {self._schema.types}")
        return Rows(rows.seq, rows.sub, pa.RecordBatch.from_arrays(rows.data.columns, schema=self._schema))


def _in_order(rows: Rows, ends: Sequence[int]) -> bool:
    """Whether the IDs rise in each of the parts that end before these rows. (3 ns a row; a step takes hundreds.)"""
    seq, sub = rows.seq, rows.sub
    rise = seq[1:] > seq[:-1]
    for end in ends[:-1]:
        rise[end - 1] = True
    if rise.all():
        return True
    rise |= (seq[1:] == seq[:-1]) & (sub[1:] > sub[:-1])
    return bool(rise.all())
