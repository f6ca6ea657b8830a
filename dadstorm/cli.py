"""The ``dadstorm`` command: what a user types, and how mistakes are told.

Exit codes: 0 success, 1 the run failed, 2 a mistake in the user's files or arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from dadstorm import __version__
from dadstorm.entry import guarded, loading
from dadstorm.errors import UserError
from dadstorm.options import (
    TOPOLOGY,
    cluster_options,
    engine_arguments,
    lib_option,
    run_arguments,
    run_options,
    spark_options,
)

RUN_HELP = """\
Runs a topology on this machine to the end of its inputs, or until ^C, which drains what is
under way and stops cleanly. Progress goes to standard error, results to files (or the terminal).

examples:
  dadstorm run configs/reach.yaml                      each result to out/<operator>, by Spark
  dadstorm run wordcount.yaml --sink csv               to out/<operator>.csv, without Spark
  dadstorm run wordcount.yaml --out results --sink parquet
  dadstorm run job.yaml --script experiment.txt        with commands: Start, Freeze, Crash, Wait …
  dadstorm run live.yaml --sink console                rows on the terminal as they come
  dadstorm run job.yaml --resume                       after everything was killed (durable: DIR)
  dadstorm run job.yaml --lib ~/my_functions           where CUSTOM functions are found
  dadstorm run job.yaml --audit                        record digests, for dadstorm diff; what is done
                                                       again after a crash must give the same
  dadstorm run job.yaml --engine spark --master spark://node:7077 --checkpoint /shared/job
                                                       as Spark jobs, the same bytes (docs/spark.md)
  dadstorm run job.yaml --shake-delay 50 --shake-batch 7
                                                       shake its timing: the output stays the same
"""

CHECK_HELP = """\
Validates a topology and prints the plan that would run: operators, slices, replicas, hosts,
routing, ID bits, warnings. Starts nothing. All mistakes are reported at once.

example:
  dadstorm check configs/reach.yaml
"""

KEYS_HELP = """\
Makes the keys of a cluster in a new folder. Copy the folder to every host, readable for you alone,
and give it with --keys DIR to each pcs and to dadstorm run. Who has the keys belongs to the cluster.

example:
  dadstorm keys ~/cluster
"""

HOSTS_HELP = """\
Asks the PCS of every host of a topology whether it can run there: is it there, has it the same
version, the CUSTOM modules, the data files, the ports. Starts nothing.

example:
  dadstorm hosts job.yaml --keys ~/cluster
"""

CONVERT_HELP = """\
Prints the topology, in YAML, that a configuration in DADSTORM's original language stands for.
(run, check and puppetmaster take such files as they are.)

example:
  dadstorm convert configs/legacy/reach.config > configs/legacy/reach.yaml
"""

DIFF_HELP = """\
Compares two audited runs (dadstorm run --audit): the digests of every operator, epoch by epoch, then
the outputs, and shows the first difference. The operator that is named first is the one that makes it:
all that it was given was the same. How many slices, replicas or hosts each run had does not matter.
Exit code 0: the same; 1: different; 2: cannot be compared.

examples:
  dadstorm run job.yaml --audit --out a                in runs/job-1
  dadstorm run job.yaml --audit --out b                in runs/job-2
  dadstorm diff runs/job-1 runs/job-2
  dadstorm diff runs/job-1 runs/job-2 --out1 old/a     where the first one's results are now
"""

SIMULATE_HELP = """\
Runs whole clusters in one process, each drawn from a seed: a small topology, its data, and a storm
of faults (messages lost, doubled and late, crashes, hangs, cut networks). When the storm is over,
each must finish with the right output. A seed that fails is told in full, and comes back the same.

examples:
  dadstorm simulate                                    the first 200 seeds
  dadstorm simulate --seeds 1000..1999 --jobs 2
  dadstorm simulate --seeds 17 --verbose               the story of one
"""

VERIFY_HELP = """\
Reads back a table that a spark sink wrote and compares it with its manifest: rows and digests, commit by
commit, and epoch by epoch if it has IDs. Exit code 0: as written down; 1: not; 2: no such table.

example:
  dadstorm verify out/counts
"""

SCHEMA_HELP = """\
Prints the JSON Schema of topology files, for editors that complete and check YAML.

example:
  dadstorm schema > dadstorm.schema.json
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, dispatch, and turn every error meant for the user into a message and an exit code."""
    return guarded(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    code: int = options.action(options)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dadstorm",
        description="A deterministic, exactly-once stream processor. Describe a topology in YAML, run it, get the same "
        "bytes every time.",
        epilog="dadstorm COMMAND --help teaches each command by example.",
    )
    parser.add_argument("--version", action="version", version=f"dadstorm {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = _command(commands, "run", "run a topology on this machine", RUN_HELP, _run)
    run.add_argument("topology", metavar="FILE", help=TOPOLOGY)
    run_options(run, script="commands to run it with; operators then wait for their Start")
    run.add_argument("--quiet", action="store_true", help="no progress, no summary")
    spark_options(run)
    shake = run.add_argument_group("shaking", "change the timing of a run, to see that its output stays the same")
    shake.add_argument("--shake-delay", metavar="MS", type=_not_negative, default=0, help="delay messages by up to MS")
    shake.add_argument("--shake-batch", metavar="ROWS", type=_not_negative, default=0, help="at most ROWS in a step")
    shake.add_argument("--shake-seed", metavar="N", type=int, default=0, help="seed of the delays and the order")
    shake.add_argument("--shake-order", action="store_true", help="start the replicas in a random order")

    check = _command(commands, "check", "validate a topology and print its plan", CHECK_HELP, _check)
    check.add_argument("topology", metavar="FILE", help=TOPOLOGY)
    check.add_argument("--script", metavar="FILE", help="commands to check as well")
    lib_option(check)

    convert = _command(commands, "convert", "print an old configuration as a topology", CONVERT_HELP, _convert)
    convert.add_argument("configuration", metavar="FILE", help="a file in the original language")
    lib_option(convert)

    hosts = _command(commands, "hosts", "check the hosts of a topology", HOSTS_HELP, _hosts)
    hosts.add_argument("topology", metavar="FILE", help=TOPOLOGY)
    lib_option(hosts)
    cluster_options(hosts)

    keys = _command(commands, "keys", "make the keys of a cluster", KEYS_HELP, _keys)
    keys.add_argument("folder", metavar="DIR", help="where they go")

    simulate = _command(commands, "simulate", "run simulated clusters through faults", SIMULATE_HELP, _simulate)
    simulate.add_argument("--seeds", metavar="A..B", default="0..199", help="from A to B (default: 0..199)")
    simulate.add_argument("--jobs", metavar="N", type=_not_negative, default=1, help="processes to use (default: 1)")
    simulate.add_argument("--verbose", action="store_true", help="tell every story, not only those that go wrong")

    diff = _command(commands, "diff", "compare two audited runs", DIFF_HELP, _diff)
    diff.add_argument("run1", metavar="RUN1", help="the folder of a run: runs/<name>-<number>")
    diff.add_argument("run2", metavar="RUN2", help="the folder of the other")
    diff.add_argument("--out1", metavar="DIR", help="where the results of RUN1 are, if they have been moved")
    diff.add_argument("--out2", metavar="DIR", help="where the results of RUN2 are, if they have been moved")

    verify = _command(commands, "verify", "check a table that Spark wrote", VERIFY_HELP, _verify)
    verify.add_argument("table", metavar="DIR", help="the folder of the table")

    _command(commands, "schema", "print the JSON Schema of topologies", SCHEMA_HELP, _schema)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, brief: str, text: str, action: object
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=brief, description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(action=action)
    return parser


def _not_negative(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, found {text!r}")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    if engine_arguments(options):
        from puppetmaster.engine import EngineOptions
        from puppetmaster.engine import run as run_on_spark

        return run_on_spark(EngineOptions(options.topology, quiet=options.quiet, **engine_arguments(options)))
    from pcs.private import private_pcs

    with private_pcs(options.keys) as pcs:
        with loading():  # Only now: while we load our parts, the PCS loads its.
            from dadstorm.wire.control import Shake
            from puppetmaster.run import Options, run

        shake = Shake(options.shake_delay, options.shake_batch, options.shake_seed, options.shake_order)
        return run(Options(options.topology, shake=shake, quiet=options.quiet, **run_arguments(options)), pcs)


def _check(options: argparse.Namespace) -> int:
    from dadstorm import topology
    from dadstorm.loading import load
    from puppetmaster import script

    plan = load(options.topology, libs=options.lib)
    commands = script.load(plan, options.script)
    print(topology.describe(plan))
    if commands is not None:
        count = len(commands.steps)
        print(f"script: {count} command{'' if count == 1 else 's'}")
        print("".join(f"  {warning}\n" for warning in commands.warnings), end="")
    return 0


def _convert(options: argparse.Namespace) -> int:
    from dadstorm.legacy import language as legacy

    if not legacy.is_legacy(options.configuration) and os.path.exists(options.configuration):
        raise UserError(f"{options.configuration} is not in the original language; see docs/legacy.md")
    converted = legacy.convert(options.configuration, options.lib)
    for warning in converted.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(converted.yaml, end="")
    return 0


def _hosts(options: argparse.Namespace) -> int:
    from dadstorm import logs
    from dadstorm.loading import load as load_plan
    from dadstorm.wire.keys import load
    from puppetmaster.hosts import place
    from puppetmaster.preflight import look, table

    logs.configure(process="puppetmaster", level="error")
    plan = place(load_plan(options.topology, libs=options.lib), options.pcs)
    found = look(plan, None if options.keys is None else load(options.keys))
    print(table(found, plan))
    return 2 if any(host.problems for host in found.values()) else 0


def _keys(options: argparse.Namespace) -> int:
    from dadstorm.wire.keys import make

    make(options.folder)
    print(f"{options.folder}: keys made. Copy the folder to every host of the cluster, and nowhere else.")
    return 0


def _simulate(options: argparse.Namespace) -> int:
    from dadstorm.simulator.cli import seed_range, simulate

    return simulate(seed_range(options.seeds), max(1, options.jobs), options.verbose)


def _diff(options: argparse.Namespace) -> int:
    from dadstorm.diff import diff

    return diff(options.run1, options.run2, options.out1, options.out2)


def _verify(options: argparse.Namespace) -> int:
    from dadstorm.spark.verify import verify

    return verify(options.table)


def _schema(options: argparse.Namespace) -> int:
    from dadstorm import topology

    print(topology.json_schema())
    return 0
