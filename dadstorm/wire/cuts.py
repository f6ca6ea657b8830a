"""Cut networks, for experiments: who may not send to whom.

A cut has two sides, each a set of addresses; nothing passes between them, in either direction. Everybody is told all
cuts there are, whole, and works out from its own addresses what it may not send to. It is the sender who drops: what
was under way when the cut came still arrives.
"""

from __future__ import annotations

from collections.abc import Iterable

Cuts = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
"""The two sides of each cut."""


def barred(cuts: Cuts, mine: Iterable[str]) -> frozenset[str]:
    """Where one who has these addresses may not send to; to itself it always may."""
    own = frozenset(mine)
    beyond = {
        address
        for left, right in cuts
        for here, there in ((left, right), (right, left))
        if own.intersection(here)
        for address in there
    }
    return frozenset(beyond - own)
