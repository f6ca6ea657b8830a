"""The core: everything that happens on the ID line, as state machines without I/O.

Nothing below this package imports sockets, clocks, threads, files or randomness: events go in,
actions come out, and the same events give the same actions. ``tests/unit/test_layering.py`` checks it.
"""
