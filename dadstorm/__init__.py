"""DADSTORM: a deterministic, exactly-once stream processor for Python."""

import os

__version__ = "0.1.0"

# Arrow asks for this once, when it is first imported. What a tile takes is given back within milliseconds and wanted
# again at once: the system's allocator keeps it, Arrow's own would give it to the kernel and get it back zeroed.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

# NumPy starts a thread of OpenBLAS for every core when it is first imported, and each spins for a while: a third of
# what a start takes. With one, sums of products do not depend on how many cores there are, either.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
