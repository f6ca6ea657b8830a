"""Three topologies on both engines, with 1, 4 and 16 slices, on ``local[2]`` and on a standalone cluster on loopback.

    scripts/same-engines [--words 2000000] [--slices 1 4 16] [--masters local cluster]

``configs/reach.yaml``, a diamond with keyed counts, and a word count of two million words. The native engine says what
has to come out, with 2 slices; each run of the Spark engine must have the same digests, epoch by epoch, and the same
bytes. Ends with 1 if one of them has not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dadstorm.spark.engine.sessions import Sessions
from puppetmaster.engine import EngineOptions
from puppetmaster.engine import run as run_on_spark
from tests.bench.spark_engine import TOPOLOGY as WORD_COUNT
from tests.bench.spark_engine import WORDS
from tests.bench.spark_engine import make as make_words
from tests.cluster.kit import ROOT, run
from tests.spark.standalone import EXECUTOR_MEMORY, cluster
from tests.spark.test_spark_engine import DIAMOND, files

NATIVE_SLICES = 2


def reach(slices: int) -> str:
    return (ROOT / "configs" / "reach.yaml").read_text().replace("replicas: 2", f"slices: {slices}")


TOPOLOGIES: dict[str, Callable[[int], str]] = {
    "reach": reach,
    "diamond": lambda slices: DIAMOND.format(slices=slices, spark=""),
    "words": lambda slices: WORD_COUNT.format(slices=slices),
}


def prepare(folder: Path, words: int) -> None:
    """The topologies' inputs."""
    shutil.copy(ROOT / "configs" / "reach.py", folder)
    shutil.copytree(ROOT / "configs" / "reach", folder / "reach")
    lines = [f"{n},{n % 70},{'apple' if n % 3 else 'kiwi'},{n / 7}\n" for n in range(2500)]
    (folder / "more.csv").write_text("".join(lines))
    make_words(folder, words // WORDS)


def native(folder: Path, name: str) -> float:
    """What the native engine makes of a topology, in native-NAME; seconds."""
    (folder / f"{name}.yaml").write_text(TOPOLOGIES[name](NATIVE_SLICES))
    begun = time.monotonic()
    where = ["--runs", f"runs-native-{name}", "--out", f"native-{name}"]
    run("run", f"{name}.yaml", "--audit", "--quiet", "--sink", "csv", *where, cwd=folder).ok()
    return time.monotonic() - begun


def difference(folder: Path, sessions: Sessions, name: str, slices: int, out: str) -> str | None:
    """Run a topology on Spark; what differs from the native engine's output, if anything."""
    (folder / f"{out}.yaml").write_text(TOPOLOGIES[name](slices))
    options = EngineOptions(f"{out}.yaml", sink="csv", out=out, runs=f"runs-{out}", quiet=True, audit=True)
    if run_on_spark(options, sessions) != 0:
        return "it failed"
    told = run("diff", f"runs-native-{name}/{name}-1", f"runs-{out}/{out}-1", cwd=folder)
    if told.code != 0:
        return told.out
    return None if files(folder / out) == files(folder / f"native-{name}") else "the digests agree, the files do not"


@contextmanager
def session(master: str, conf: dict[str, str], folder: Path) -> Iterator[Sessions]:
    sessions = Sessions(master, conf, str(folder))
    try:
        yield sessions
    finally:
        sessions.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/same-engines", description=__doc__)
    parser.add_argument("--words", type=int, default=2_000_000)
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--masters", nargs="+", choices=("local", "cluster"), default=["local", "cluster"])
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="dadstorm-same-") as made:
        folder = Path(made)
        os.chdir(folder)
        prepare(folder, options.words)
        for name in TOPOLOGIES:
            print(f"{name}, native: {native(folder, name):.1f} s", flush=True)
        for kind in options.masters:
            conf = {"spark.executor.memory": EXECUTOR_MEMORY} if kind == "cluster" else {}
            with cluster(folder / "cluster") if kind == "cluster" else nullcontext("local[2]") as master:
                log_folder = folder / f"spark-{kind}"
                log_folder.mkdir()
                with session(master, conf, log_folder) as sessions:
                    for name in TOPOLOGIES:
                        for slices in options.slices:
                            begun = time.monotonic()
                            found = difference(folder, sessions, name, slices, f"{name}-{kind}-{slices}")
                            wrong += found is not None
                            took = f"{time.monotonic() - begun:.1f} s"
                            said = f"the same ({took})" if found is None else f"DIFFERENT ({took}): {found}"
                            print(f"{name}, {kind}, {slices} slices: {said}", flush=True)
    print(f"{wrong} differ" if wrong else "all the same")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
