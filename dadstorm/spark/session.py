"""One embedded Spark session per process, and no Java left behind, however it ends.

PySpark's driver is a Java process. It is a child of this one and ends with it: it reads a pipe of ours and ends at its
end of file; in a replica the kernel also kills it with its parent, and the PCS kills the replica's process group. What
Spark says goes to a log file in the run's folder, and what it keeps for a while to a folder beside that: nothing of it
is seen on the terminal or left in the system's folder for temporary files.

Two things to know. The kernel kills a child when the *thread* that forked it ends: in a replica, whoever opens a
session keeps that thread alive as long as the session. And PySpark keeps its session in class attributes: when the
Java process has died they have to be forgotten by hand, or the next session would talk to the dead one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dadstorm.errors import UserError
from dadstorm.spark import archive, java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_WITHIN_S = 10.0
DEATH_WITHIN_S = 2.0
"""How long the death of the Java process may take to be seen after a call has failed because of it."""
LOG_TAIL_BYTES = 4096
LOG_TAIL_LINES = 3
CAUSES_MAX = 20

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n
"""
_THROWN = re.compile(r"[\w.$]+(?:Exception|Error): (.*)")
_one = threading.Lock()


class SessionLost(Exception):
    """The Java process is gone, or never came: whoever needs it opens another session."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a session is to be like."""

    name: str
    """Tells its files apart in the run's folder, and is what a cluster's pages show."""
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings, which win over ours."""

    @property
    def local(self) -> bool:
        return self.master.startswith("local")


class Session:
    """A session that is open. Only one thread talks to it at a time."""

    def __init__(self, spark: SparkSession, process: subprocess.Popen[bytes], settings: Settings, scratch: str) -> None:
        self.spark = spark
        self._process = process
        self._settings = settings
        self._scratch = scratch

    @property
    def pid(self) -> int:
        """Of the Java process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def lost(self, error: BaseException) -> bool:
        """Whether a call has failed because the Java process is gone."""
        from py4j.protocol import Py4JNetworkError

        if isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(DEATH_WITHIN_S if isinstance(error, OSError) else 0.1)
        return not self.alive

    def end(self, within_s: float) -> None:
        """Let the Java process end by itself: it does so when nobody holds its pipe any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)

    def close(self) -> None:
        """End the Java process and remove what Spark kept. An embedded Spark has nothing to say good-bye to; a
        cluster is told that the application is over."""
        if self.alive and not self._settings.local:
            with contextlib.suppress(Exception):
                self.spark.stop()
        server = getattr(self.spark.sparkContext, "_accumulatorServer", None)
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_WITHIN_S)
        if server is not None:
            with contextlib.suppress(OSError):
                server.shutdown()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        _forget()
        shutil.rmtree(self._scratch, ignore_errors=True)


def open_session(settings: Settings, folder: str) -> Session:
    """Start Spark; takes some seconds. Its log and scratch files go to ``folder``.

    Raises UserError if there is no PySpark or no Java, or a setting that Spark refuses; SessionLost if the Java process
    ended before it was ready."""
    if (problem := java.problem()) is not None:
        raise UserError(problem)
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    scratch = scratch_folder(settings, folder)
    shutil.rmtree(scratch, ignore_errors=True)
    temporary = os.path.join(scratch, "tmp")
    os.makedirs(temporary)
    with open(os.path.join(scratch, "log4j2.properties"), "w", encoding="utf-8") as file:
        file.write(_LOG4J)
    conf = SparkConf(loadDefaults=False)
    found = java.find()
    for key, value in configuration(settings, scratch, archive.option(found)).items():
        conf.set(key, value)
    home = found.home_for_spark(scratch)
    gateway: Any = None
    # One at a time: the environment and PySpark's class attributes belong to the whole process.
    with _one, open(log_file(settings, folder), "ab") as log:
        _forget()
        try:
            with _environment(settings, home, temporary):
                gateway = launch_gateway(conf, {"stdout": log, "stderr": log})
                context = SparkContext(gateway=gateway, conf=conf)
                spark = SparkSession(context)
                # A server of PySpark's would print a traceback about the end of its connection.
                vars(context).get("_accumulatorServer", context).handle_error = _say_nothing
            return Session(spark, gateway.proc, settings, scratch)
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            alive = gateway is not None and gateway.proc.poll() is None
            said = reason(error)  # Now: an error of Java's is asked for while that lives.
            if gateway is not None:
                gateway.proc.kill()
                gateway.proc.wait(END_WITHIN_S)
            _forget()
            if alive and not isinstance(error, ConnectionError | EOFError):
                raise UserError(
                    f"Spark does not start with master {settings.master!r} and these settings: {said}. "
                    f"Its log is {log_file(settings, folder)}"
                ) from None
            raise SessionLost(f"Spark's Java process ended while it was starting{_tail(settings, folder)}") from error


def configuration(settings: Settings, scratch: str, option: str = "") -> dict[str, str]:
    """All that Spark is told: ours, overridden by the user's; and an option of Java's."""
    options = (
        f"-XX:-UsePerfData -Djava.io.tmpdir={scratch}/tmp -Dderby.system.home={scratch}/derby "
        f"-Dlog4j2.configurationFile=file:{scratch}/log4j2.properties {option}"
    ).strip()
    ours = {
        "spark.app.name": settings.name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": os.path.join(scratch, "tmp"),
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if settings.local:
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    theirs = dict(settings.conf)
    extra = theirs.pop("spark.driver.extraJavaOptions", "")
    return {
        **ours,
        **theirs,
        "spark.master": settings.master,
        "spark.driver.extraJavaOptions": f"{options} {extra}".strip(),
    }


def log_file(settings: Settings, folder: str) -> str:
    """Where Spark's own words go."""
    return os.path.join(folder, f"spark-{settings.name}.log")


def shown_file(name: str, folder: str) -> str:
    """How a table begins, for the front end of the run whose folder this is."""
    return os.path.join(folder, f"spark-{name}.txt")


def scratch_folder(settings: Settings, folder: str) -> str:
    """What Spark keeps while it runs."""
    return os.path.join(os.path.abspath(folder), f"spark-{settings.name}")


def reason(error: BaseException) -> str:
    """What Spark says is wrong, without the stacks of either language: the cause, on one line."""
    said = getattr(error, "desc", None) or ""
    with contextlib.suppress(Exception):  # Java is asked, and may be gone.
        said = said or str(error)
    java_exception = getattr(error, "java_exception", None)
    if java_exception is not None:
        with contextlib.suppress(Exception):
            said = _cause(java_exception)
    if "Lost task" in str(said) and (match := _THROWN.search(str(said))):
        said = match[1]  # Spark tells where a task failed before it tells why.
    lines = [line.strip() for line in str(said).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("at ", "JVM stacktrace", "=="))]
    return " ".join(kept)[:500].rstrip(" .") or type(error).__name__


def _say_nothing(*request: object) -> None:
    """In place of what a server prints about a connection that broke."""


def _cause(error: Any) -> str:
    """What the innermost cause of a Java exception says; what the next one says, if that has it and more."""
    texts: list[str] = []
    while error is not None and len(texts) < CAUSES_MAX:
        texts.append(str(error.getMessage() or error.toString()))
        error = error.getCause()
    while len(texts) > 1 and texts[-1] in texts[-2]:
        texts.pop()
    return texts[-1]


def _tail(settings: Settings, folder: str) -> str:
    """The last that Spark's log says, to be told with what went wrong."""
    path = log_file(settings, folder)
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
    except OSError:
        return ""
    words = [line for line in lines if line and not line.startswith("at ")]
    said = " ".join(words[-LOG_TAIL_LINES:])[:500]
    return f": {said} (its log is {path})" if said else f" (its log is {path})"


@contextlib.contextmanager
def _environment(settings: Settings, java_home: str, temporary: str) -> Iterator[None]:
    """What the Java process, and the Python that starts it, find around them; as before when the block is left."""
    wanted: dict[str, str | None] = {
        "JAVA_HOME": java_home,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
        "PYSPARK_SUBMIT_ARGS": None,
        "PYSPARK_GATEWAY_PORT": None,
    }
    if settings.local:  # A cluster's own installation and settings count; an embedded Spark is PySpark's, as it is.
        wanted |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": None, "SPARK_CONF_DIR": None}
    before = {key: os.environ.get(key) for key in wanted}
    folder = tempfile.tempdir
    _set_environment(wanted)
    tempfile.tempdir = temporary
    try:
        yield
    finally:
        tempfile.tempdir = folder
        _set_environment(before)


def _set_environment(wanted: Mapping[str, str | None]) -> None:
    for key, value in wanted.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


def _forget() -> None:
    """PySpark forgets the session it had. With a dead Java process it cannot do so by itself."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context, session = vars(SparkContext), vars(SparkSession)
    for owner, names, name in (
        (SparkContext, context, "_gateway"),
        (SparkContext, context, "_jvm"),
        (SparkContext, context, "_active_spark_context"),
        (SparkSession, session, "_instantiatedSession"),
        (SparkSession, session, "_activeSession"),
    ):
        if name in names:
            setattr(owner, name, None)
