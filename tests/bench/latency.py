"""From a tuple's emission to its line in the output file, at a steady rate, exactly-once.

Lines go to a TCP source at so many a second, a few every millisecond; each is a key. They pass through three operators
with two replicas each: a filter, a count by key, a filter. A tuple is emitted when it is due, not when the
source takes it, so whoever falls behind cannot hide it. Nothing is lost and the output is in the order of the
input: its line number n is tuple number n, and the moment the file has grown to hold it is when a user sees it. The
file is looked at every half millisecond.

The second case has so many keys of state before the clock starts, so that snapshots of them are taken meanwhile.
``stolen`` tells which share of the CPU that was wanted the machine's host gave to others: that is in the figures too.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cluster"))

from benchkit.report import Stolen, finished, pyplot, save, say, table, warn_if_busy
from kit import connected, free_port, running, until

TOPOLOGY = """
name: latency
semantics: exactly-once
sources:
  keys: {{tcp: {port}, format: csv, fields: [key:int]}}
operators:
  before: {{input: keys, filter: key >= 0, replicas: 2}}
  counts: {{input: before, count: key, replicas: 2}}
  after:  {{input: counts, filter: count > 0, replicas: 2}}
"""
FEW_KEYS = 100
TICK_S = 0.001
LOOK_S = 0.0005
SETTLE_S = 1.0
"""Left out at the beginning."""
GOALS = "goals: at 10,000/s p50 ≤ 5 ms, p99 ≤ 25 ms; at 100,000/s p99 ≤ 100 ms"


class Lines(threading.Thread):
    """How many lines a growing file has, and since when."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._over = threading.Event()
        self.seen: list[tuple[float, int]] = [(0.0, 0)]
        self.content = b""

    def run(self) -> None:
        while not self._path.exists() and not self._over.wait(LOOK_S):
            pass
        if self._over.is_set():
            return
        parts, count = [], 0
        with open(self._path, "rb", buffering=0) as file:
            while True:
                over = self._over.is_set()
                found = file.read(1 << 20)
                if found:
                    count += found.count(b"\n")
                    self.seen.append((time.monotonic(), count))
                    parts.append(found)
                elif over:
                    break
                else:
                    time.sleep(LOOK_S)
        self.content = b"".join(parts)

    @property
    def count(self) -> int:
        return self.seen[-1][1]

    def stop(self) -> None:
        self._over.set()
        self.join()

    def moments(self, first: int, last: int) -> np.ndarray:
        """When each line from number ``first`` on, up to ``last``, was there."""
        times, counts = (np.array(column) for column in zip(*self.seen, strict=True))
        return times[np.searchsorted(counts, np.arange(first, last), side="right")]


def feed(to: socket.socket, keys: np.ndarray, rate: int) -> np.ndarray:
    """Send keys at the rate; when each was due."""
    begun = time.monotonic() + TICK_S
    due = begun + np.floor(np.arange(len(keys)) / rate / TICK_S) * TICK_S
    lines = [b"%d\n" % key for key in keys.tolist()]
    sent = 0
    while sent < len(keys):
        now = time.monotonic()
        upto = int(np.searchsorted(due, now, side="right"))
        if upto > sent:
            to.sendall(b"".join(lines[sent:upto]))
            sent = upto
        else:
            time.sleep(max(0.0, due[sent] - now))
    return due


def latencies(folder: Path, rate: int, seconds: float, keys: int) -> np.ndarray:
    """Seconds from due to written, of every tuple."""
    port = free_port()
    (folder / "latency.yaml").write_text(TOPOLOGY.format(port=port))
    chance = np.random.default_rng(1)
    with running("run", "latency.yaml", "--sink", "csv", "--quiet", cwd=folder) as command:
        output = Lines(folder / "out" / "after.csv")
        output.start()
        with connected(port) as to:
            to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            to.sendall(b"".join(b"%d\n" % key for key in range(keys)))
            until(lambda: output.count >= keys or command.process.poll() is not None, "all keys have been counted")
            assert command.process.poll() is None, command.err.text
            measured = chance.integers(0, keys, int(rate * (seconds + SETTLE_S)))
            due = feed(to, measured, rate)
            until(lambda: output.count >= keys + len(measured), "all tuples have come out")
        command.interrupt()
        command.ended(60)
        output.stop()
    counts = np.ones(keys, dtype=int)
    for key, line in zip(measured.tolist(), output.content.splitlines()[keys:], strict=True):
        counts[key] += 1
        assert line == b"%d,%d" % (key, counts[key]), f"the output is wrong: {line!r} for {key}"
    return (output.moments(keys, keys + len(measured)) - due)[int(rate * SETTLE_S) :]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench latency", description=__doc__)
    parser.add_argument("--rate", nargs="+", type=int, default=[10_000], help="tuples a second (%(default)s)")
    parser.add_argument("--keys", type=int, default=100_000, help="of state, in the second case (%(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="for each (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="for JSON and plots (%(default)s)")
    options = parser.parse_args(arguments)
    warn_if_busy()
    rows, found, curves = [], [], {}
    for rate in options.rate:
        for keys in dict.fromkeys((FEW_KEYS, options.keys)):
            stolen = Stolen()
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                ms = latencies(Path(folder), rate, options.seconds, keys) * 1000
            p50, p90, p99, most = np.percentile(ms, [50, 90, 99, 100]).tolist()
            say(f"{rate:,} tuples/s, {keys:,} keys: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
            told = [f"{one:.1f}" for one in (p50, p90, p99, most)]
            rows.append([f"{rate:,}", f"{keys:,}", *told, f"{stolen.share:.0%}"])
            case = {"rate": rate, "keys": keys, "stolen": stolen.share}
            found.append({**case, "p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "most_ms": most})
            curves[f"{rate:,}/s, {keys:,} keys"] = np.percentile(ms, np.arange(0, 100.1, 0.1))
    print(f"3 operators, 2 replicas each, exactly-once, {options.seconds:g} s each ({GOALS})")
    print(table(["tuples/s", "keys", "p50 ms", "p90 ms", "p99 ms", "most ms", "stolen"], rows))
    save(options.out, "latency", {"cases": found})
    drawn(options.out, curves)
    return 0


def drawn(out: Path, curves: dict[str, np.ndarray]) -> None:
    """Latency by percentile."""
    plt = pyplot()
    if plt is None:
        return
    figure, axis = plt.subplots(figsize=(7, 3.6))
    for name, curve in curves.items():
        axis.plot(np.linspace(0, 100, len(curve)), curve, label=name)
    axis.set_xlabel("percentile")
    axis.set_ylabel("ms from emission to the output file")
    axis.set_yscale("log")
    axis.legend()
    finished(plt, figure, out, "latency")


if __name__ == "__main__":
    raise SystemExit(main())
