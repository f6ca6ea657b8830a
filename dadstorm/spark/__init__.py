"""Spark: what DADSTORM does with it, and nothing that is loaded without it.

``java`` finds a Java, ``session`` runs one embedded Spark per process, ``commits`` is the pure logic of exactly-once
commits, ``table`` the folder that they make up, ``writer`` what Spark writes, ``verify`` the check afterwards.
PySpark is imported inside functions only: who does not use Spark need not have it.
"""
