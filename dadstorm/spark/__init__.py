"""Spark: what DADSTORM does with it, and nothing that is loaded without it.

``java`` finds a Java, ``archive`` lets it start faster, ``session`` runs one embedded Spark per process, ``commits`` is
the pure logic of exactly-once commits, ``table`` the folder that they make up, ``catalog`` its name in Spark's catalog,
``writer`` what Spark writes, ``verify`` the check afterwards.
The other way: ``frames`` is what Spark reads for a source, ``staged`` and ``batches`` are the folders that it fills.
``spool`` is a topology's output as a folder, and ``source`` the data source of Spark's that reads it.
PySpark is imported inside functions only (but in ``source``, which is for those who have it): who does not use Spark
need not have it.
"""
