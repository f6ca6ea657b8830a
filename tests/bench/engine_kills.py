"""kill -9 of the Spark engine at random moments, from a seed: the digests and the outputs are those of a run in peace.

    python tests/bench/engine_kills.py [--kills 15] [--seed 1] [--master local[2]]

Each life is killed after a random while: its Python (and with it all), or its Java process, or a Python worker. The
last one is left in peace. The native engine says what has to come out.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = """\
span: 1024
sources:
  made: {{generate: {{n: counter, k: {{int: [0, 4999]}}, w: {{words: {{count: 3, vocabulary: 500}}}}}}, count: {count}}}
operators:
  words:  {{input: made, split: w}}
  times:  {{input: words, count: w, slices: 4}}
  firsts: {{input: made, uniq: k, slices: 3}}
  both:   {{input: [words, firsts], dup: }}
  total:  {{input: both, count: }}
sinks:
  csv:     {{input: times, csv: times.csv, with_id: true}}
  rows:    {{input: firsts, parquet: firsts}}
  sum:     {{input: total, jsonl: total.jsonl}}
"""
STARTED_WITHIN_S = 240.0


class Wrong(Exception):
    """What came out is not what had to."""


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "dadstorm", "run", "t.yaml", "--audit", "--quiet", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def tree(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def victims(process: subprocess.Popen[bytes]) -> dict[str, list[int]]:
    """Who could be killed."""
    javas, workers = [], []
    for one in tree(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(one.cmdline())
            if one.name() == "java":
                javas.append(one.pid)
            elif "pyspark" in words and ("daemon" in words or "worker" in words):
                workers.append(one.pid)
    return {"driver": [process.pid], "java": javas, "worker": workers}


def victim(process: subprocess.Popen[bytes], chance: random.Random) -> tuple[str, int]:
    """Whom to kill."""
    kinds = victims(process)
    kind = chance.choice(["driver", "driver", "java", "worker"])
    pids = kinds[kind] or kinds["driver"]
    return (kind if kinds[kind] else "driver"), chance.choice(sorted(pids))


def lives_on(folder: Path, master: str) -> tuple[str, bool]:
    """A run whose Python workers are killed when it has committed something, and which has to go on by itself."""
    process = subprocess.Popen(command(folder, *_arguments(master)), cwd=folder, env=environment())
    try:
        _wait_for_a_commit(process, folder / "kept", [])
        workers = victims(process)["worker"]
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = process.wait(600)
    finally:
        if process.poll() is None:
            process.kill()
    return f"killed: {len(workers)} workers, exit {code}", bool(workers) and code == 0


def one_life(
    folder: Path, master: str, resume: bool, chance: random.Random | None, slack: float = 1.0
) -> tuple[str, bool]:
    """Start or resume, and kill; how it went, and whether it is complete. ``slack``: how much to wait, of seconds."""
    arguments = [*_arguments(master), *(["--resume"] if resume else [])]
    process = subprocess.Popen(command(folder, *arguments), cwd=folder, env=environment(), stderr=subprocess.PIPE)
    try:
        told = "in peace"
        if chance is not None:
            _wait_for_a_commit(process, folder / "kept", _books(folder / "kept"))
            time.sleep(slack * chance.random() * chance.choice([0.1, 1.0, 3.0]))
            kind, pid = victim(process, chance)
            told = f"killed: {kind}"
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if kind != "driver":
                time.sleep(slack * chance.random() * 5)
                told += ", then the driver"
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        _, words = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            process.kill()
    # The life before may have been killed when all was done.
    over = process.returncode == 0 or b"the last run is complete" in words
    if not over and process.returncode > 0:
        raise Wrong(f"{told}, exit {process.returncode}: {words.decode(errors='replace')}")
    return f"{told}, exit {process.returncode}", over


def _arguments(master: str) -> list[str]:
    return ["--engine", "spark", "--master", master, "--checkpoint", "kept", "--out", "spark", "--runs", "lives"]


def _wait_for_a_commit(process: subprocess.Popen[bytes], kept: Path, before: list[tuple[str, int]]) -> None:
    until = time.monotonic() + STARTED_WITHIN_S
    while process.poll() is None and _books(kept) == before and time.monotonic() < until:
        time.sleep(0.02)


def _books(kept: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in kept.glob("run-*/book"))


def outputs(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def check(kills: int, seed: int, master: str, count: int, folder: Path, slack: float = 1.0) -> int:
    """Kill up to so many lives of a run, as many as it has; how many it were. Raises Wrong if it is not right."""
    chance = random.Random(seed)
    in_peace(folder, count)
    complete, lives, killed = False, 0, 0
    while lives < kills and not complete:
        told, complete = one_life(folder, master, lives > 0, chance, slack)
        lives += 1
        killed += not complete
        print(f"life {lives}: {told}", flush=True)
    if not complete:
        told, complete = one_life(folder, master, lives > 0, None)
        print(f"the last life: {told}", flush=True)
    compare(folder, complete)
    print(f"seed {seed}: {killed} kills, the digests and bytes of a run in peace", flush=True)
    return killed


def in_peace(folder: Path, count: int) -> None:
    """What has to come out, by the native engine."""
    (folder / "t.yaml").write_text(TOPOLOGY.format(count=count))
    native = [*command(folder), "--out", "native", "--runs", "native-runs"]
    subprocess.run(native, cwd=folder, env=environment(), check=True)


def compare(folder: Path, complete: bool) -> None:
    """Raises Wrong unless the digests and the outputs are those of the run in peace."""
    last = max((folder / "lives").iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    diff = [sys.executable, "-m", "dadstorm", "diff", "native-runs/t-1", str(last)]
    same = subprocess.run(diff, cwd=folder, env=environment()).returncode == 0
    bytes_same = outputs(folder / "native") == outputs(folder / "spark")
    if not (complete and same and bytes_same):
        raise Wrong(f"complete {complete}, digests the same {same}, bytes the same {bytes_same}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=400_000)
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    killed, seed = 0, options.seed
    while killed < options.kills:
        with tempfile.TemporaryDirectory(prefix="dadstorm-kills-") as folder:
            killed += check(options.kills - killed, seed, options.master, options.count, Path(folder))
        seed += 1
    print(f"{killed} kills, none wrong")
    return 0


if __name__ == "__main__":
    sys.exit(main())
