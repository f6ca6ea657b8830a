"""The Spark engine: a topology as a chain of Spark jobs, one for each step along the ID line.

A *step* is a range of seqs. Its job has *stages* (``stages``): the first one reads the sources, each further one runs
operators that have state, split over its partitions by slice; what has no state runs where its tuples are. Between
stages travel *parcels* (``parcels``), tiles packed as bytes, so that Spark moves few large rows instead of many small
ones. ``work`` is what a partition of a stage computes, without files or Spark; ``task`` is that in a worker of
Spark's; ``job`` is the step seen from the driver, ``outputs`` the sinks there, ``store`` the state on disk, and ``run``
the front end, which takes one step after the other and commits each with a single rename (``book``).
"""
