"""The ``puppetmaster`` command: a console, and a script if there is one, for a topology over one host or several."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dadstorm import __version__
from dadstorm.entry import guarded, loading
from dadstorm.errors import UserError
from dadstorm.options import run_arguments, run_options

HELP = """\
Deploys a topology and takes commands: Start, Interval, Status, Crash, Freeze, Unfreeze, Slow,
Partition, Heal, Kill, Wait, Stop, Help, Exit. Operators do nothing before their Start. At a terminal
it is a console with history and completion; from a pipe it reads a command a line.

examples:
  puppetmaster configs/reach.yaml
  puppetmaster configs/reach.yaml --script experiment.txt     the script first, then the console
  puppetmaster configs/legacy/reach.config                    the file's own commands first
  puppetmaster reach.yaml --pcs 10.0.0.1 --pcs 10.0.0.2 --keys cluster-keys
  puppetmaster --attach --pcs 10.0.0.1 --keys cluster-keys    what runs there, without its PuppetMaster
  puppetmaster --attach reach                                 at the PCS of this machine; several run there
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, run the console, and turn every error meant for the user into a message and an exit code."""
    return guarded(lambda: _main(arguments))


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    if options.attach is not None:
        return _attach(options)
    topology = options.topology or _ask_for_topology()
    from pcs.private import private_pcs

    with private_pcs(options.keys) as pcs:
        with loading():  # Only now: while we load our parts, the PCS loads its.
            from puppetmaster.console import console
            from puppetmaster.run import Options

        return console(Options(topology, **run_arguments(options)), pcs)


def _ask_for_topology() -> str:
    """For who has not said which."""
    if not sys.stdin.isatty():
        raise UserError("no topology: expected puppetmaster FILE")
    try:
        path = input("topology file: ").strip()
    except EOFError:
        path = ""
    if not path:
        raise UserError("no topology: expected puppetmaster FILE")
    return path


def _attach(options: argparse.Namespace) -> int:
    from puppetmaster.attach import AttachOptions
    from puppetmaster.console import attached_console

    given = [f"--{name}" for name in ("out", "sink", "lib", "audit", "resume") if getattr(options, name)]
    if options.topology or given:
        found = ", ".join([*([options.topology] if options.topology else []), *given])
        raise UserError(f"--attach takes over a run as it is: expected puppetmaster --attach [RUN], found also {found}")
    pcs, keys, listen = tuple(options.pcs), options.keys, options.listen
    return attached_console(AttachOptions(options.attach, pcs, keys, listen, options.runs, options.script))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="puppetmaster", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"dadstorm {__version__}")
    parser.add_argument("topology", metavar="FILE", nargs="?", help="the topology (asked for, if it is not given)")
    parser.add_argument(
        "--attach",
        metavar="RUN",
        nargs="?",
        const="",
        help="take over a run at the --pcs (this machine's, if none is given): its name or ID; none: the only one",
    )
    run_options(parser, script="commands to carry out first")
    return parser
