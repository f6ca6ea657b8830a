"""Arrays that grow at their end."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def room(array: NDArray[Any], used: int, size: int) -> NDArray[Any]:
    """The array with room for so many; doubled, so that what is appended costs the same however much there is."""
    if size <= len(array):
        return array
    larger = np.empty(max(size, 2 * len(array)), dtype=array.dtype)
    larger[:used] = array[:used]
    return larger
