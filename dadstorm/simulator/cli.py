"""``dadstorm simulate``: scenarios from many seeds, and for each that fails the whole story.

A seed is a number from which everything follows, so a failure is told by its seed and comes back the same, on any
machine, as long as the code is the same.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from dadstorm.errors import UserError
from dadstorm.simulator.scenario import Outcome, Scenario

CHUNK = 20
"""So many seeds go to a process at a time."""
PROGRESS_S = 2.0
STORIES_MAX = 5
"""After so many failures that are told in full, only their seeds are."""


def seed_range(text: str) -> range:
    """``A..B``, both included, or a single ``A``."""
    found = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", text)
    if not found or int(found[2] or found[1]) < int(found[1]):
        raise UserError(f"--seeds {text}: expected A..B, as in 0..1999, or a single number")
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def simulate(seeds: range, jobs: int = 1, verbose: bool = False) -> int:
    """Run them all; 1 if one failed. ``verbose`` tells every story, not only those of failures."""
    began = told = time.monotonic()
    failed: list[int] = []
    done = events = recoveries = 0
    for outcome in _outcomes(seeds, jobs):
        done += 1
        events += outcome.events
        recoveries += outcome.recoveries
        if outcome.problem:
            failed.append(outcome.seed)
        if verbose or (outcome.problem and len(failed) <= STORIES_MAX):
            print(f"{outcome.report()}\n", flush=True)
        elif outcome.problem:
            print(f"seed {outcome.seed}: {outcome.problem.strip().splitlines()[-1]}", flush=True)
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            rate = f"{done / (told - began):.0f} seeds/s"
            print(f"{done} of {len(seeds)} seeds, {len(failed)} failed, {rate}", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(
        f"{done} seeds in {seconds:.1f} s ({done / seconds:.1f} seeds/s), {events} events, {recoveries} recoveries: "
        + (f"{len(failed)} failed: {', '.join(map(str, failed))}" if failed else "none failed")
    )
    return 1 if failed else 0


def _outcomes(seeds: range, jobs: int) -> Iterator[Outcome]:
    """In the order of the seeds, whoever is done first."""
    if jobs == 1:
        yield from map(_run, seeds)
        return
    lifeline, ours = os.pipe()
    try:
        with ProcessPoolExecutor(jobs, initializer=_hold, initargs=(lifeline, ours)) as pool:
            # A few chunks ahead of the slowest, not all of a million at once.
            chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
            waiting = iter(chunks)
            running = [pool.submit(_run_all, chunk) for chunk in islice(waiting, 4 * jobs)]
            while running:
                outcomes = running.pop(0).result()
                running += [pool.submit(_run_all, chunk) for chunk in islice(waiting, 1)]
                yield from outcomes
    finally:
        os.close(ours)
        os.close(lifeline)


def _hold(lifeline: int, theirs: int) -> None:
    """In a process of the pool: end with who started it, by whatever way that ends. Only it has the other end now."""
    os.close(theirs)

    def end() -> None:
        os.read(lifeline, 1)
        os._exit(1)

    threading.Thread(target=end, name="lifeline", daemon=True).start()


def _run(seed: int) -> Outcome:
    return Scenario(seed).run()


def _run_all(seeds: range) -> list[Outcome]:
    return [_run(seed) for seed in seeds]
