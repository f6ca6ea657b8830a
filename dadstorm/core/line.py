"""The ID line: positions, and how a tuple's ``sub`` is packed.

An ID is ``(seq, sub)``. ``seq`` is the position that a source gave; the line runs from ``START`` to ``END``, and a
cut, a frontier and the ends of a tile are seqs too. All rows with one seq lie in one tile: a boundary never falls
between the outputs of one source record.

``sub`` packs, level by level, by which input a tuple came into an operator and which output of its parent it is::

    sub_out = ((sub_in << align) << input_bits | input) << output_bits | ordinal

Packing keeps order, so merging by (seq, sub) after the input number is packed in is the DADSTORM report's merge by ID
with ties broken by input stream. ``align`` makes inputs of different width comparable: it shifts the narrower ones so
that the levels they share line up, which keeps the offspring of one tuple together. The widths are fixed when the
topology is compiled, so packing can never overflow; an ordinal that does not fit is the operator's fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"

START = 0
"""The first seq there can be."""

END = 2**63 - 1
"""Past the last seq there can be: a stream whose tiles reach END is complete."""

SUB_BITS_MAX = 63
"""``sub`` is a non-negative int64."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How one operator derives the IDs of its outputs: the bits it adds to ``sub``."""

    aligns: tuple[int, ...]
    """Per input: how far its sub is shifted so that all inputs have the same width."""
    input_bits: int
    output_bits: int

    def enter(self, sub: Ints, input_index: int) -> Ints:
        """The sub of rows that came by an input, as the merge compares them."""
        shift = self.aligns[input_index] + self.input_bits
        return (sub << shift) | input_index if shift else sub

    def leave(self, sub: Ints, ordinal: Ints | None) -> Ints:
        """The sub of output rows, from their parents' entered sub and which output of the parent each is."""
        if not self.output_bits:
            return sub
        shifted = sub << self.output_bits
        return shifted if ordinal is None else shifted | ordinal


def bits_for(count: int) -> int:
    """How many bits tell ``count`` things apart: 0 for one, 1 for two, 2 for three or four…"""
    return max(0, count - 1).bit_length()
