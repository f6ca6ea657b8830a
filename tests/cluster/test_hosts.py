"""One topology over several hosts: the same bytes as on one, and everything that is wrong anywhere told beforehand.

Every PCS is a daemon of its own, at another address. What ends is ended everywhere: however a PuppetMaster or a PCS
goes, no replica is left once the PCS has noticed, as docs/hosts.md says.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from kit import Running, free_port, run, running, until
from pcs_kit import Site, namespaces, pcs, started

from dadstorm import __version__
from dadstorm.wire import keys

pytestmark = pytest.mark.cluster

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "the", "fox", "sleeps"]
TOPOLOGY = """
hosts: {{a: "{a}", b: "{b}"}}
sources:
  lines: {{text: lines.txt, fields: [line], on: a}}
  more: {{generate: {{n: {{int: [0, 50]}}}}, count: 3000, seed: 3, on: b}}
operators:
  words: {{input: lines, split: line, replicas: 3, on: [a, b], routing: random}}
  once: {{input: words, uniq: line, replicas: 2, on: [b, a]}}
  many: {{input: words, count: line, replicas: 2, on: [a, b]}}
  odd: {{input: more, custom: mine.odd, fields: [n:int], replicas: 2, on: [b, a]}}
"""
MINE = "def odd(n):\n    if n % 2:\n        yield n\n"
LASTING = """
suspect_after: 20s
hosts: {{a: "{a}", b: "{b}"}}
sources:
  g: {{generate: {{n: counter}}, rate: 4000, on: a}}
operators:
  left: {{input: g, dup: , replicas: 2, on: [a, b]}}
  right: {{input: g, filter: n >= 0, on: b}}
  both: {{input: [left, right], dup: }}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with everything that the topologies need, and the cluster's keys."""
    (tmp_path / "lines.txt").write_text("".join(f"{' '.join(WORDS[i % 7 :])} {i % 97}\n" for i in range(2000)))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.py").write_text(MINE)
    (tmp_path / "data").mkdir()
    keys.make(str(tmp_path / "keys"))
    return tmp_path


@contextmanager
def two_hosts(folder: Path, *, guarded: bool = True, sites: tuple[Site, Site] | None = None) -> Iterator[Cluster]:
    """A PCS at each of two sites."""
    sites = sites or (Site("127.0.0.2"), Site("127.0.0.3"))
    options: list[str | Path] = ["--lib", folder / "lib", "--data", folder]
    options += ["--keys", folder / "keys"] if guarded else []
    with (
        pcs(folder / "a", *options, site=sites[0]) as (first, a),
        pcs(folder / "b", *options, site=sites[1]) as (second, b),
    ):
        yield Cluster(folder, (first, second), a, b, ("--keys", str(folder / "keys")) if guarded else ())


class Cluster:
    def __init__(self, folder: Path, daemons: tuple[Running, Running], a: str, b: str, keys: tuple[str, ...]) -> None:
        self.folder = folder
        self.daemons = daemons
        self.a, self.b = a, b
        self.keys = keys

    def write(self, text: str) -> str:
        (self.folder / "job.yaml").write_text(text.format(a=self.a, b=self.b))
        return "job.yaml"

    @contextmanager
    def lasting(self) -> Iterator[Running]:
        """A run over both that goes on until it is stopped; rows come out."""
        with running("run", self.write(LASTING), *self.keys, cwd=self.folder) as command:
            output = self.folder / "out" / "both.csv"
            until(lambda: output.exists() and output.stat().st_size > 0, "rows come out")
            yield command

    def replicas(self, which: int) -> list[psutil.Process]:
        """The replicas at a PCS: children of its zygote."""
        (zygote,) = psutil.Process(self.daemons[which].process.pid).children()
        return zygote.children()


def events(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "runs" / "job-1" / "puppetmaster.log").read_text().splitlines()]


def pid_of(folder: Path, name: str) -> int:
    return [int(str(e["pid"])) for e in events(folder) if e["event"] == "replica up" and e["replica"] == name][-1]


def is_right(files: dict[str, bytes]) -> None:
    """Every number twice, in order."""
    lines = files["both.csv"].decode().splitlines()
    assert lines == [str(i // 2) for i in range(len(lines))]
    assert len(lines) > 0


# -- the same bytes ---------------------------------------------------------------------------------------------------


def on_one_host(folder: Path) -> dict[str, bytes]:
    alone_folder = folder / "alone"
    alone_folder.mkdir()
    (alone_folder / "lines.txt").write_bytes((folder / "lines.txt").read_bytes())
    lines = [line for line in TOPOLOGY.format(a="x", b="x").splitlines() if not line.startswith("hosts")]
    text = "\n".join(lines)
    for placed in (", on: [a, b]", ", on: [b, a]", ", on: a", ", on: b"):
        text = text.replace(placed, "")
    (alone_folder / "job.yaml").write_text(text)
    return run("run", "job.yaml", "--lib", folder / "lib", cwd=alone_folder).ok().files


@pytest.mark.parametrize("guarded", [True, False], ids=["with keys", "without"])
def test_two_hosts_give_the_same_bytes_as_one(folder: Path, guarded: bool) -> None:
    with two_hosts(folder, guarded=guarded) as cluster:
        outcome = run("run", cluster.write(TOPOLOGY), "--lib", "lib", *cluster.keys, cwd=folder).ok()
    assert outcome.files == on_one_host(folder)
    assert set(outcome.files) == {"once.csv", "many.csv", "odd.csv"}


def test_network_namespaces_with_keys_give_the_same_bytes_as_one_host(folder: Path) -> None:
    """PuppetMaster and two PCSs, each with a network of its own; loopback addresses where that cannot be had."""
    with ExitStack() as stack:
        try:
            master, first, second = stack.enter_context(namespaces(3))
        except OSError:
            master, first, second = Site("127.0.0.1"), Site("127.0.0.2"), Site("127.0.0.3")
        cluster = stack.enter_context(two_hosts(folder, sites=(first, second)))
        arguments = ("run", cluster.write(TOPOLOGY), "--lib", "lib", *cluster.keys)
        with started("dadstorm", *arguments, cwd=folder, site=master) as command:
            outcome = command.ended().ok()
    ups = [str(event["address"]) for event in events(folder) if event["event"] == "replica up"]
    assert {address.removeprefix("tcp://").rpartition(":")[0] for address in ups} == {
        master.address,
        first.address,
        second.address,
    }
    assert outcome.files == on_one_host(folder)


def test_a_pcs_takes_the_place_of_this_machine(folder: Path) -> None:
    (folder / "job.yaml").write_text(
        "sources: {g: {generate: {n: counter}, count: 1000}}\noperators: {d: {input: g, dup: , replicas: 4}}\n"
    )
    (folder / "out").mkdir()
    with pcs(folder / "a", "--out", folder / "out") as (_, address):
        outcome = run("run", "job.yaml", "--pcs", address, cwd=folder).ok()
        assert outcome.files["d.csv"].decode().split() == [str(n) for n in range(1000)]
        again = run("run", "job.yaml", "--pcs", address, cwd=folder).ok()
        assert again.files == outcome.files


def test_logs_of_all_hosts_are_found_in_one_place(folder: Path) -> None:
    (folder / "lib" / "mine.py").write_text("def odd(n):\n    print('saw', n)\n    yield n\n")
    with two_hosts(folder) as cluster:
        run("run", cluster.write(TOPOLOGY), "--lib", "lib", *cluster.keys, cwd=folder).ok()
        printed = [folder / "runs" / "job-1" / f"printed-{a.replace(':', '-')}.txt" for a in (cluster.a, cluster.b)]
    said = [line for path in printed for line in path.read_text().splitlines()]
    assert len(said) == 3000
    assert all(line.startswith("saw ") for line in said)


# -- recoveries over hosts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "victims",
    [
        ["left replica 0"],
        ["left replica 1"],
        ["right replica 0"],
        ["left replica 0", "left replica 1"],
        ["g replica 0"],
    ],
    ids="+".join,
)
def test_a_replica_of_another_host_is_brought_back(folder: Path, victims: list[str]) -> None:
    """Its ring may be on both hosts, on the other one, or all dead."""
    with two_hosts(folder) as cluster, cluster.lasting() as command:
        for name in victims:
            os.kill(pid_of(folder, name), signal.SIGKILL)
        written = (folder / "out" / "both.csv").stat().st_size
        until(lambda: (folder / "out" / "both.csv").stat().st_size > written + 20_000, "it goes on")
        command.interrupt()
        outcome = command.ended().ok()
    is_right(outcome.files)


# -- what is wrong is found before anything starts --------------------------------------------------------------------


def test_everything_wrong_with_every_host_is_told_at_once(folder: Path) -> None:
    """No PCS; a module, a data file, a folder to write that cannot be had; too many replicas."""
    empty = free_port()
    with (
        pcs(folder / "a", "--data", folder / "data", "--lib", folder / "data", "--max-replicas", "100") as (_, a),
        pcs(folder / "b", "--max-replicas", "3", site=Site("127.0.0.2")) as (_, b),
    ):
        (folder / "job.yaml").write_text(
            f"""
hosts: {{a: "{a}", b: "{b}", c: "127.0.0.9:{empty}"}}
sources:
  lines: {{text: lines.txt, fields: [line], on: a}}
  g: {{generate: {{n: counter}}, count: 5, on: c}}
operators:
  m: {{input: g, custom: mine.odd, fields: [n:int], on: a}}
  d: {{input: g, dup: , replicas: 4, on: b}}
  l: {{input: lines, dup: , on: c}}
sinks:
  s: {{input: d, csv: result.csv, on: a}}
  t: {{input: [m], console: }}
  u: {{input: [l], console: }}
"""
        )
        checked = run("hosts", "job.yaml", "--lib", "lib", cwd=folder)
        outcome = run("run", "job.yaml", "--lib", "lib", cwd=folder)
    assert outcome.code == 2, outcome.err
    assert checked.code == 2
    for told in (outcome.err, checked.out):
        assert "lines.txt' is not below a folder that this PCS may read; start it with --data DIR" in told
        assert "there is no module mine" in told
        assert "result.csv' is not below a folder that this PCS may write; start it with --out DIR" in told
        assert "4 replicas more than the 0 here would exceed the limit of 3" in told
        assert f"127.0.0.9:{empty}: no PCS can be reached there" in told
    assert not (folder / "runs").exists()
    assert "Traceback" not in outcome.err + checked.err


def test_a_data_file_and_a_port_that_are_not_to_be_had_there(folder: Path) -> None:
    (folder / "lines.txt").rename(folder / "data" / "lines.txt")
    with pcs(folder / "a", "--data", folder / "data", site=Site("127.0.0.2")) as (_, a):
        host, port = a.split(":")
        (folder / "job.yaml").write_text(
            f"hosts: {{a: '{a}'}}\nsources: {{l: {{text: data/lines.txt, fields: [t], on: a}}}}\n"
            f"operators: {{d: {{input: l, dup: , address: 'tcp://{host}:{port}'}}}}\n"
        )
        outcome = run("run", "job.yaml", cwd=folder)
    assert outcome.code == 2
    assert f"PCS {a}: operator d, replica 0: cannot listen on {a}: Address already in use" in outcome.err


@pytest.mark.parametrize(
    "change, told",
    [
        ("import dadstorm; dadstorm.__version__ = '99.0'", f"it has DADSTORM 99.0, and this is {__version__}"),
        ("from dadstorm.wire import codec; codec.MAGIC = b'DST\\x63'", "it speaks version 99 of the wire"),
    ],
    ids=["program", "wire"],
)
def test_another_version_is_told(folder: Path, change: str, told: str) -> None:
    """A PCS of another version, made by changing its number before it starts."""
    other = f"{change}; import sys; from pcs.cli import main; sys.exit(main(sys.argv[1:]))"
    with pcs(folder / "a", site=Site("127.0.0.2"), python=("-c", other)) as (_, a):
        (folder / "job.yaml").write_text(
            f"hosts: {{a: '{a}'}}\nsources: {{g: {{generate: {{n: counter}}, count: 5, on: a}}}}\n"
            "operators: {d: {input: g, dup: }}\n"
        )
        outcome = run("run", "job.yaml", cwd=folder)
    assert outcome.code == 2, outcome.err
    assert told in outcome.err


def test_without_keys_nobody_else_is_let_in_or_gone_to(folder: Path) -> None:
    with started("pcs.cli", "--host", "10.1.2.3", cwd=folder) as command:
        assert command.ended().code == 2
    assert "there are no keys: make keys with `dadstorm keys DIR`" in command.err.text
    (folder / "job.yaml").write_text(
        "sources: {g: {generate: {n: counter}, count: 5, on: 192.0.2.1}, t: {tcp: 'tcp://0.0.0.0:7007', fields: [x]}}\n"
        "operators: {d: {input: g, dup: }, e: {input: t, dup: }}\n"
    )
    outcome = run("hosts", "job.yaml", cwd=folder)
    assert outcome.code == 2
    assert "192.0.2.1:10000: it is another machine, and there are no keys" in outcome.out
    assert "source t: 0.0.0.0:7007 can be reached by others, and there are no keys" in outcome.out


def test_folders_of_code_or_keys_that_topologies_could_write_are_refused(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "code").mkdir()
    options = ("--out", folder / "out", "--lib", folder / "out" / "code", "--keys", folder / "keys", "--runs", folder)
    with started("pcs.cli", *options, cwd=folder) as command:
        assert command.ended().code == 2
    assert "--lib" in command.err.text and "--keys" in command.err.text
    assert command.err.text.count("overlaps a folder that topologies may write to") == 2


# -- endings ----------------------------------------------------------------------------------------------------------


def ended_by(number: int) -> Callable[[Running], None]:
    return lambda command: command.process.send_signal(number)


MASTER_ENDS = {
    "^C": lambda command: command.interrupt(),
    "SIGTERM": ended_by(signal.SIGTERM),
    "kill -9": ended_by(signal.SIGKILL),
}


@pytest.mark.parametrize("how", MASTER_ENDS)
def test_a_puppetmaster_that_ends_leaves_no_replica_and_the_pcs_goes_on(folder: Path, how: str) -> None:
    with two_hosts(folder) as cluster:
        with cluster.lasting() as command:
            assert cluster.replicas(0) and cluster.replicas(1)
            MASTER_ENDS[how](command)
            command.ended()
        until(lambda: not cluster.replicas(0) and not cluster.replicas(1), "no replica is left", 25)
        run("run", cluster.write(TOPOLOGY), "--lib", "lib", *cluster.keys, cwd=folder).ok()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_pcs_that_ends_takes_its_replicas_with_it_and_the_run_says_so(folder: Path, number: int) -> None:
    """Somebody wants it to end. One that is killed leaves them, for another to adopt: that is test_adoption's."""
    with two_hosts(folder) as cluster:
        with cluster.lasting() as command:
            gone = [*cluster.replicas(1), cluster.daemons[1].process]
            cluster.daemons[1].process.send_signal(number)
            cluster.daemons[1].process.wait(20)
            until(lambda: not any(is_alive(process.pid) for process in gone), "its replicas are gone", 10)
            outcome = command.ended(40)
        assert outcome.code == 1, outcome.err
        assert f"the PCS {cluster.b} " in outcome.err
        assert "Traceback" not in outcome.err
        until(lambda: not cluster.replicas(0), "the other host's replicas are gone", 10)
        is_right(outcome.files)


def test_a_pcs_that_is_killed_with_its_zygote_leaves_nothing(folder: Path) -> None:
    with two_hosts(folder) as cluster, cluster.lasting():
        replicas = cluster.replicas(0)
        daemon = psutil.Process(cluster.daemons[0].process.pid)
        (zygote,) = daemon.children()
        daemon.kill()
        zygote.kill()
        until(lambda: not any(is_alive(process.pid) for process in replicas), "its replicas are gone", 10)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
