"""A Spark cluster of one's own on this machine: a master and workers on loopback, as Spark's scripts start them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from dadstorm.spark import java
from tests.cluster.kit import free_port, until

EXECUTOR_MEMORY = "512m"


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The URL of a master that has so many workers of one core; all of them are gone when the block is left."""
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "JAVA_HOME": java.find().home_for_spark(str(folder)),
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LAUNCHER_OPTS": "-XX:-UsePerfData",
        "SPARK_DAEMON_JAVA_OPTS": f"-XX:-UsePerfData -Djava.io.tmpdir={folder}",
    }
    log = open(folder / "cluster.log", "ab")  # noqa: SIM115
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        command = [os.path.join(home, "bin", "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        started.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))

    def said(text: str) -> int:
        return (folder / "cluster.log").read_text(errors="replace").count(text)

    try:
        port = free_port()
        url = f"spark://127.0.0.1:{port}"
        start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        until(lambda: said("I have been elected leader") > 0, "a master")
        for _ in range(workers):
            start("worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", url)
        until(lambda: said("Successfully registered with master") >= workers, f"{workers} workers")
        yield url
    finally:
        for process in reversed(started):
            below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
            process.wait()
            for one in below:
                if one.is_running():
                    one.kill()
        log.close()

