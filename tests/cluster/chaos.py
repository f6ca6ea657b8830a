"""Chaos: a running topology is disturbed at random, from a seed; the output must not change by a byte.

The topology has a diamond, an expanding operator, two keyed states and two or three replicas everywhere; its source is
paced, so that a run takes some seconds and there is something to disturb. What happens to it:

- a replica is killed (SIGKILL), or hung (SIGSTOP) for longer than its peers' patience: it is then replaced, whether it
  wakes up again or not;
- two replicas are killed at the same moment, of one operator or of two;
- who takes a dead replica's place (its new incarnation, or, with ``recovery: spread``, one that adopts its slices) is
  killed soon after, in the middle of that;
- the network is cut between two operators, replicas or hosts for a while (``Partition``, ``Heal``);
- in every second round all of it runs at two PCS daemons, and then a daemon is killed and started again, or the
  PuppetMaster is killed and another one attached.

How lost replicas are recovered, and whether the run is durable, is drawn from the seed too; half of the seeds have no
chains and no lanes. Faults keep to what the
topology can bear: of every ring one who has its copies lives on. So who was struck counts as lost until the log says
that it is recovered, or as long as that may take on a busy machine. Who is alone in its ring has its copies at its PCS,
and unless the run is durable nowhere else: then that PCS is not killed while such a one is lost, nor such a one before
a new PCS can have the copies. Run as a program (``scripts/chaos``) this does any number of rounds.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from every_death import main as every_death
from kit import Running, files_in, free_port, run, running, until
from pcs_kit import Site, pcs

TOPOLOGY = """
name: chaos
snapshot_every: 300ms
recovery: %(recovery)s
chain: %(chain)s
%(durable)ssources:
  visits:
    generate: {n: counter, user: {int: [0, 5000]}, text: {words: 4}}
    count: %(count)d
    rate: %(rate)d
    slices: 2
    replicas: 2
operators:
  some:   {input: visits, filter: n >= 10, replicas: 2}
  words:  {input: visits, split: text, replicas: 2}
  fresh:  {input: words, uniq: [user, text], replicas: 3}
  either: {input: [some, fresh], dup: , replicas: 2}
  counts: {input: either, count: user, replicas: 3, slices: 6}
"""
OPERATORS = {"visits": 2, "some": 2, "words": 2, "fresh": 3, "either": 2, "counts": 3, "counts.sink": 1}
COUNT, RATE, HOSTS_RATE = 40_000, 6_000, 4_000
PAUSE_S = (0.3, 1.0)
"""Between two faults."""
FORGOTTEN_S = 8.0
"""A loss of so long ago is made good, also if nobody has logged it: the PuppetMaster may have been dead meanwhile."""
COPIED_S = 2.0
"""By then, after it was started, a PCS has been given the copies of those who have nobody else."""
HANG_S = 1.6
"""Longer than ``suspect_after``."""
CUT_S = (0.5, 3.0)
WITHIN_S = 150.0
"""How long the rest of a run may take."""
SOON_S = 0.15
"""Within this time after a death, or after its successor is up, the successor dies too: in the middle of it all."""
DURABLE = "durable: state/kept\n"
UP = re.compile(r" up (\S+) (\d+) at \S+, process (\d+)")
LOSS = re.compile(
    r"^(?P<when>\S+)Z (?P<what>died|spread|recovered) (?P<ring>\S+) (?P<number>\d+)"
    r"(?: over (?P<adopters>[\d ,and]+) after| in \d+ ms .*? at replica (?P<adopter>\d+)|,| in)",
    re.MULTILINE,
)

ENDED = ("the run is over", "no run to attach to")
"""What a PuppetMaster says that comes too late."""


@dataclass(frozen=True)
class Round:
    seed: int
    about: str
    """How it was run."""
    faults: list[str]
    code: int
    same: bool
    seconds: float
    message: str

    def __str__(self) -> str:
        verdict = "identical" if self.same and not self.code else f"WRONG (exit {self.code}) {self.message}"
        faults = f"{len(self.faults)} faults ({', '.join(self.faults)})"
        return f"seed {self.seed} ({self.about}): {faults}, {self.seconds:.1f} s: {verdict}"


def reference(folder: Path) -> dict[str, bytes]:
    """The output of an undisturbed run, as fast as it goes."""
    folder.mkdir(parents=True)
    (folder / "topology.yaml").write_text(topology(10_000_000))
    run("run", "topology.yaml", cwd=folder).ok()
    return files_in(folder / "out")


def topology(rate: int, recovery: str = "respawn", durable: bool = False, chain: bool = True) -> str:
    return TOPOLOGY % {
        "count": COUNT, "rate": rate, "recovery": recovery, "durable": DURABLE if durable else "",
        "chain": str(chain).lower(),
    }  # fmt: skip


def disturbed(folder: Path, seed: int, wanted: dict[str, bytes], faults: int, *, hosts: bool | None = None) -> Round:
    """One run with faults; at two PCS daemons (``hosts``), or, if nobody says so, with every odd seed."""
    (folder / "out").mkdir(parents=True)
    (folder / "state").mkdir()
    at_hosts = bool(seed % 2) if hosts is None else hosts
    chance = random.Random(seed)
    recovery, durable = chance.choice(("respawn", "spread")), chance.random() < 0.3
    chain = seed // 2 % 2 == 0
    (folder / "topology.yaml").write_text(topology(HOSTS_RATE if at_hosts else RATE, recovery, durable, chain))
    about = f"{recovery}{', durable' if durable else ''}{', hosts' if at_hosts else ''}{'' if chain else ', apart'}"
    with ExitStack() as stack:
        victim = Victim(folder, chance, stack, hosts=at_hosts, spreads=recovery == "spread", durable=durable)
        begun = time.monotonic()
        done: list[str] = []
        try:
            victim.disturb(faults, done)
            outcome = victim.master.ended(within_s=WITHIN_S)
        except AssertionError as problem:
            return Round(seed, about, done, -1, False, time.monotonic() - begun, str(problem)[-2000:])
    seconds = time.monotonic() - begun
    code = 0 if victim.over_without_us else outcome.code
    return Round(seed, about, done, code, files_in(folder / "out") == wanted, seconds, outcome.err[-2000:])


class Daemon:
    """A PCS that can be killed and started again at its place."""

    def __init__(self, folder: Path, name: str, address: str, stack: ExitStack) -> None:
        self.name = name
        self._port = free_port()
        self._site = Site(address)
        self._folder = folder
        self._stack = stack
        self.start()

    @property
    def address(self) -> str:
        return f"{self._site.address}:{self._port}"

    def start(self) -> None:
        allowed = [word for name in ("out", "state") for word in ("--out", self._folder / name)]
        begun = pcs(self._folder / self.name, *allowed, site=self._site, port=self._port)
        self._running, _ = self._stack.enter_context(begun)

    def kill(self) -> None:
        self._running.process.kill()
        self._running.process.wait()


class Victim:
    """A running topology, and what can be done to it."""

    def __init__(
        self, folder: Path, chance: random.Random, stack: ExitStack, *, hosts: bool, spreads: bool, durable: bool
    ) -> None:
        self._spreads = spreads
        self._durable = durable
        self._folder = folder
        self._chance = chance
        self._stack = stack
        places = {"a": "127.0.0.2", "b": "127.0.0.3"} if hosts else {}
        self.over_without_us = False
        """The run ended while its PuppetMaster was dead."""
        self._daemons = [Daemon(folder, name, address, stack) for name, address in places.items()]
        where = [argument for daemon in self._daemons for argument in ("--pcs", daemon.address)]
        self.master = self._begin("topology.yaml", *where)
        self._struck: dict[str, datetime] = {}
        """When we have last killed or hung each."""
        self._pcs_killed = -COPIED_S
        """When that was over, and the PCS was started again."""
        self._say("Start")
        until(lambda: " Start\n" in self._events(), "all replicas are there, and started")
        self._faults: dict[Callable[[], str], int] = {
            self._kill: 4, self._kill_two: 3, self._kill_again: 3, self._hang: 2, self._cut: 2
        }  # fmt: skip
        if hosts:
            self._faults |= {self._kill_pcs: 3, self._kill_master: 3, self._cut: 3}

    def disturb(self, faults: int, done: list[str]) -> None:
        """So many faults, one after the other, or as many as there is time for; ``done`` tells what they were."""
        while len(done) < faults:
            time.sleep(self._chance.uniform(*PAUSE_S))
            if self.master.process.poll() is not None or self._is_over():
                break
            (fault,) = self._chance.choices(list(self._faults), list(self._faults.values()))
            with suppress(ProcessLookupError, BrokenPipeError):
                done.append(fault())
        assert self.master.process.stdin is not None
        with suppress(BrokenPipeError):
            self.master.process.stdin.close()

    # -- faults --------------------------------------------------------------------------------------------------

    def _kill(self) -> str:
        bearable = [name for name in sorted(self._living()) if self._bears(name)]
        if not bearable:
            return "wait"
        name = self._chance.choice(bearable)
        self._strike(name)
        return f"kill {name}"

    def _kill_two(self) -> str:
        """Two at the same moment, of any operators."""
        living = sorted(self._living())
        first, second = self._chance.sample(living, 2)
        if not self._bears(first, second):
            return self._kill()
        self._strike(first, second)
        return f"kill {first} and {second}"

    def _kill_again(self) -> str:
        """Whoever takes a dead one's place, in the middle of that."""
        living = self._living()
        first = self._chance.choice(sorted(living))
        if not self._bears(first):
            return self._kill()
        self._strike(first)
        others = [name for name in living if name != first and ring(name) == ring(first)]
        if self._spreads and others:
            second = self._chance.choice(sorted(others))
            if not self._bears(second):
                return f"kill {first}"
            time.sleep(self._chance.uniform(0.0, SOON_S))
            self._strike(second)
            return f"kill {first} and soon {second}"
        until(lambda: self._living().get(first, living[first]) != living[first] or self._is_over(), f"{first} is back")
        time.sleep(self._chance.uniform(0.0, SOON_S))
        self._strike(first)
        return f"kill {first} twice"

    def _hang(self) -> str:
        name, pid = self._chance.choice(sorted(self._living().items()))
        if not self._bears(name):
            return self._kill()
        self._struck[name] = datetime.now(timezone.utc)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(HANG_S)
        with suppress(ProcessLookupError):  # Who has been replaced was killed.
            os.kill(pid, signal.SIGCONT)
        return f"hang {name}"

    def _strike(self, *names: str) -> None:
        living = self._living()
        for name in names:
            self._struck[name] = datetime.now(timezone.utc)
            with suppress(ProcessLookupError, KeyError):
                os.kill(living[name], signal.SIGKILL)

    def _bears(self, *victims: str) -> bool:
        """Whether somebody is left who has the copies of these: of their ring, or the PCS of who is alone."""
        living, lost = self._living(), losses(self._events(), self._struck)
        for struck in {ring(name) for name in victims}:
            members = [name for name in living if ring(name) == struck]
            whole = not any(ring(name) == struck for name in lost)
            alone = OPERATORS[struck] == 1 or (len(members) == 1 and whole)
            if alone and not self._pcs_has_copies():
                return False
            if not alone and not any(name not in victims and name not in lost for name in members):
                return False
        return True

    def _pcs_has_copies(self) -> bool:
        return self._durable or time.monotonic() - self._pcs_killed >= COPIED_S

    def _cut(self) -> str:
        replicas = [f"{name}/{number}" for name, count in OPERATORS.items() for number in range(count)]
        left, right = self._chance.sample([*OPERATORS, *replicas], 2)
        if self._daemons and self._chance.random() < 0.5:
            left, right = (daemon.address for daemon in self._daemons)
        self._say(f"Partition {left} {right}")
        time.sleep(self._chance.uniform(*CUT_S))
        self._say("Heal")
        return f"cut {left} | {right}"

    def _kill_pcs(self) -> str:
        if not self._durable and needs_pcs(self._living(), losses(self._events(), self._struck)):
            return self._kill()
        daemon = self._chance.choice(self._daemons)
        daemon.kill()
        time.sleep(self._chance.uniform(0.0, 1.0))
        daemon.start()
        self._pcs_killed = time.monotonic()
        return f"kill and restart PCS {daemon.name}"

    def _kill_master(self) -> str:
        self.master.process.kill()
        self.master.process.wait()
        self.master = self._begin("--attach", "chaos", "--pcs", self._chance.choice(self._daemons).address)
        try:
            self.master.out.wait_for("attached to chaos")
        except AssertionError as problem:
            told = self.master.ended(within_s=10).err
            self.over_without_us = any(end in told for end in ENDED)
            assert self.over_without_us, f"{problem}\n{told}"
        return "kill and attach PuppetMaster"

    # -- the run -------------------------------------------------------------------------------------------------

    def _begin(self, *arguments: str) -> Running:
        begun = running(*arguments, cwd=self._folder, stdin=subprocess.PIPE, program="puppetmaster")
        return self._stack.enter_context(begun)

    def _say(self, command: str) -> None:
        assert self.master.process.stdin is not None
        self.master.process.stdin.write(f"{command}\n".encode())
        self.master.process.stdin.flush()

    def _events(self) -> str:
        """All that the PuppetMasters have logged, one after the other."""
        logs = sorted(self._folder.glob("runs/*/events.log"), key=lambda path: int(path.parent.name.split("-")[-1]))
        return "".join(path.read_text() for path in logs)

    def _is_over(self) -> bool:
        """Whether it is too late for faults: what is finished stays so, but who says so should live."""
        return " finished counts.sink 0\n" in self._events()

    def _replicas(self) -> dict[str, int]:
        """The process of each replica, as the log tells them."""
        return {f"{name} {number}": int(pid) for name, number, pid in UP.findall(self._events())}

    def _living(self) -> dict[str, int]:
        """Those whose process is there: with ``spread`` most who die are not started again."""
        return {name: pid for name, pid in self._replicas().items() if Path(f"/proc/{pid}").exists()}


def losses(events: str, struck: Mapping[str, datetime]) -> set[str]:
    """The replicas that were lost, or struck, and whose slices are not all recovered yet, as far as the log tells."""
    waits: dict[str, tuple[datetime, set[str]]] = {}
    for found in LOSS.finditer(events):
        when = datetime.fromisoformat(found["when"]).replace(tzinfo=timezone.utc)
        name = f"{found['ring']} {found['number']}"
        if found["what"] == "died":
            waits[name] = (when, {name})
        elif found["what"] == "spread":
            waits[name] = (when, {f"{found['ring']} {number}" for number in re.findall(r"\d+", found["adopters"])})
        else:
            waits.get(name, (when, set()))[1].discard(f"{found['ring']} {found['adopter'] or found['number']}")
    lately = datetime.now(timezone.utc) - timedelta(seconds=FORGOTTEN_S)
    lost = {name for name, (when, waited) in waits.items() if waited and when > lately}
    unheard = {name for name, when in struck.items() if name not in waits or waits[name][0] < when}
    return lost | {name for name in unheard if struck[name] > lately}


def needs_pcs(living: Iterable[str], lost: Iterable[str]) -> bool:
    """Whether somebody is lost of whose ring nobody is left: if anybody has its copies, its PCS has."""
    left = {ring(name) for name in set(living).difference(lost)}
    return any(ring(name) not in left for name in lost)


def ring(name: str) -> str:
    """The operator of a replica."""
    return name.rpartition(" ")[0]


def main() -> int:
    about = "Disturb a running topology; compare the output."
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=about)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=8, help="per round, at most")
    parser.add_argument(
        "--exhaustive", action="store_true", help="kill every replica, every pair, every f of f+1 of a small topology"
    )
    parser.add_argument("--recovery", choices=("respawn", "spread"), default="respawn", help="of --exhaustive")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ignored in the background, and by all that we start.
    if options.exhaustive:
        return every_death(options.recovery)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    wrong = done = 0
    try:
        wanted = reference(folder / "reference")
        for number in range(options.rounds):
            seed = options.seed + number
            result = disturbed(folder / str(seed), seed, wanted, options.faults)
            print(result, flush=True)
            if result.code or not result.same:
                wrong += 1
                print(f"kept: {folder / str(seed)}")
            else:
                shutil.rmtree(folder / str(seed))
            done += 1
    except KeyboardInterrupt:
        print(f"stopped after {done} rounds, {wrong} wrong; what was running has been ended")
        return 130
    finally:
        if not wrong:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{done} rounds, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
