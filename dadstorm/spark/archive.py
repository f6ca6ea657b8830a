"""Spark's classes, kept as Java likes them: it then starts in about half the time.

Most of the seconds that Spark takes to start go into loading some ten thousand classes. Java can put what it has loaded
into an archive when it ends, and map that into memory the next time. ``python -m dadstorm.spark.archive`` makes one,
which set-ups do once: about 200 MB, beside the packages of this Python. It is for one Java and one PySpark, as its name
says; with others there is none, and Spark starts as it always does. Java checks the same once more by itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import zlib

from dadstorm.errors import UserError
from dadstorm.spark import java

FOLDER = os.path.join("share", "dadstorm")
DUMPED_WITHIN_S = 300.0


def path_of(found: java.Java) -> str:
    """Where the archive for a Java and the PySpark of this Python is, if there is one."""
    spec = importlib.util.find_spec("pyspark")
    package = os.path.dirname(spec.origin) if spec is not None and spec.origin is not None else ""
    jars = os.path.join(package, "jars")
    there = sorted(os.listdir(jars)) if os.path.isdir(jars) else []
    about = [os.path.realpath(found.home), str(found.version), java.release(found.home), package, *there]
    key = zlib.crc32("\n".join(about).encode())
    return os.path.join(sys.prefix, FOLDER, f"spark-{key:08x}.jsa")


def option(found: java.Java) -> str:
    """What Java is told; nothing if there is no archive."""
    path = path_of(found)
    return f"-XX:SharedArchiveFile={path}" if os.path.isfile(path) and " " not in path else ""


def make() -> str:
    """Make the archive if it is not there; its path. Raises UserError if that does not work."""
    from dadstorm.spark.session import SessionLost, Settings, open_session

    path = path_of(java.find())
    if os.path.isfile(path):
        return path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dadstorm-") as folder:
        dumped = os.path.join(folder, "spark.jsa")
        conf = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={dumped}"}
        try:
            session = open_session(Settings("archive", "local[2]", conf), folder)
        except SessionLost as error:
            raise UserError(str(error)) from None
        try:
            frame = session.spark.range(100).selectExpr("id", "cast(id as string) as text", "id / 2 as half")
            frame.write.parquet(f"file://{folder}/table/part=1")
            session.spark.read.parquet(f"file://{folder}/table").orderBy("text").limit(3).toArrow()
            session.end(DUMPED_WITHIN_S)
        finally:
            session.close()
        if not os.path.isfile(dumped):
            raise UserError("Java has left no archive of its classes: Spark starts without, some seconds slower")
        temporary = f"{path}.tmp"
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        shutil.copyfile(dumped, temporary)
        os.replace(temporary, path)
    return path


if __name__ == "__main__":
    print(make())
