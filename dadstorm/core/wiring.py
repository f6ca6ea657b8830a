"""How a slice is put together from the plan: its inlets, outlets, window, stride and keeper."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dadstorm.core.audit import Audit, Witness
from dadstorm.core.chain import Chain
from dadstorm.core.keeper import Keeper
from dadstorm.core.kernel import Kernel
from dadstorm.core.messages import Peer
from dadstorm.core.outlet import Outlet
from dadstorm.core.routing import Router
from dadstorm.core.slice import WRITTEN, Merger, SinkSlice, SourceSlice, WorkSlice
from dadstorm.core.stride import Stride
from dadstorm.core.vault import DRAINED, Delta, Vault
from dadstorm.core.window import Window
from dadstorm.plan import Operator, Plan


class Wiring:
    """Builds the slices of one replica, each at the cut where it resumes, in its incarnation."""

    def __init__(self, plan: Plan, me: Peer, make_kernel: Callable[[Operator], Kernel]) -> None:
        self._plan = plan
        self._me = me
        self._operator = plan.operators[me.operator]
        self._make_kernel = make_kernel
        self._at_most_once = plan.semantics == "at-most-once"
        self._at_least_once = plan.semantics == "at-least-once"
        self.input_schema = plan.input_schema(self._operator) if self._operator.inputs else None

    def source(self, index: int, incarnation: int, base: Delta) -> SourceSlice:
        slice_ = SourceSlice(
            index,
            base.cut,
            self._outlets(index, incarnation, base.cut),
            self._keeper(index, incarnation, base),
            self._stride(),
            self._window(),
            self._operator.schema,
            self._chain() if self._operator.members else None,
            drained=DRAINED in (base.mark or {}),
        )
        slice_.audit = self._audit(index, base)
        return slice_

    def sink(self, index: int, incarnation: int, base: Delta) -> SinkSlice:
        assert self.input_schema is not None
        merger, keeper = self._merger(base.cut), self._keeper(index, incarnation, base)
        written = int((base.mark or {}).get(WRITTEN, 0))
        slice_ = SinkSlice(index, base.cut, keeper, self._stride(), merger, self.input_schema, written)
        slice_.audit = self._audit(index, base)
        return slice_

    def work(self, index: int, incarnation: int, base: Delta) -> WorkSlice:
        chain = self._chain()
        if base.table is not None:
            chain.restore(base.table)
        slice_ = WorkSlice(
            index,
            base.cut,
            self._outlets(index, incarnation, base.cut),
            self._keeper(index, incarnation, base),
            self._stride(),
            self._merger(base.cut),
            chain,
            self._operator.schema,
        )
        slice_.audit = self._audit(index, base)
        return slice_

    def _chain(self) -> Chain:
        first, *others = self._operator.members or (self._operator,)
        made = [(self._make_kernel(one), one.packing) for one in others]
        head = None if first.kind == "source" else (self._make_kernel(first), first.packing)
        return Chain(head, made, self._operator.schema)

    def _audit(self, index: int, base: Delta) -> Audit | None:
        return Audit(index, self._plan.span, base.cut, base.mark) if self._plan.audit else None

    def _outlets(self, slice_index: int, incarnation: int, cut: int) -> list[Outlet]:
        return [
            Outlet(
                producer=self._me,
                producer_slice=slice_index,
                incarnation=incarnation,
                consumer=self._plan.index(consumer.name),
                input_index=input_index,
                port=consumer.inputs[input_index].port,
                router=Router(consumer.routing.policy, consumer.routing.key, consumer.slices, self._plan.seed),
                retain=not self._at_most_once,
                cut=cut,
                repeat=self._plan.audit or self._at_least_once,
                anew=not (incarnation or self._plan.continues),
            )
            for consumer, input_index in self._plan.consumers(self._operator.name)
        ]

    def _keeper(self, slice_index: int, incarnation: int, base: Delta) -> Keeper | None:
        """Sources and sinks always know where they stand; state is kept unless it may be lost."""
        if self._at_most_once and self._operator.kind not in ("source", "sink"):
            return None
        return Keeper(self._me, slice_index, incarnation, Vault(base))

    def _stride(self) -> Stride:
        """Half the narrowest window is the most: a source must never wait for a cut that its window does not reach.
        Where rows turn out to be heavy, tiles tell that it is less."""
        return Stride(self._plan.snapshot_every_ms, self._window().stride)

    def _window(self) -> Window:
        """A source's window is shared out evenly over its slices. It counts records; where these bring their seqs along
        there are about ``gap`` seqs to each."""
        slices = max(operator.slices for operator in self._sources())
        gap = min((operator.params.get("gap", 1) for operator in self._sources()), default=1)
        return Window(max(1, self._plan.window_rows // slices), max(1, self._plan.window_bytes // slices), gap)

    def _sources(self) -> Iterable[Operator]:
        return [self._operator] if self._operator.kind == "source" else [
            operator for operator in self._plan.operators if operator.kind == "source"
        ]

    def _merger(self, cut: int) -> Merger:
        channels = [
            (input_index, producer_slice)
            for input_index, link in enumerate(self._operator.inputs)
            for producer_slice in range(self._plan[link.operator].slices)
        ]
        merger = Merger(
            self._operator.packing,
            self._plan.entered_bits(self._operator),
            channels,
            cut,
            gaps_allowed=self._at_most_once,
            again=self._at_least_once,
        )
        for (input_index, producer_slice), inlet in merger.inlets.items() if self._plan.audit else ():
            producer = self._plan[self._operator.inputs[input_index].operator]
            inlet.witness = Witness(self._plan, producer, producer_slice, cut)
        return merger
