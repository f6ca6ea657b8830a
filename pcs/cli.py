"""The ``pcs`` command: the Process Creation Service of a host, as a daemon.

Exit codes: 0 it was ended, 1 it could not go on, 2 a mistake in its arguments.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

import zmq

from dadstorm import __version__, logs
from dadstorm.entry import guarded
from dadstorm.errors import UserError
from dadstorm.plan import PCS_PORT
from dadstorm.wire import control
from dadstorm.wire.address import is_loopback, joined, numeric, port_of
from dadstorm.wire.endpoint import MESSAGE_BYTES_MAX
from dadstorm.wire.keys import CURE, Keys
from dadstorm.wire.keys import load as load_keys
from pcs import nest, zygote
from pcs.child import reserve
from pcs.policy import Policy, below
from pcs.service import (
    MASTER_PATIENCE_S,
    REPLICAS_MAX,
    ZYGOTE_PATIENCE_S,
    Service,
    Settings,
)

MESSAGE_MB = MESSAGE_BYTES_MAX >> 20
"""As much as replicas take: whoever is brought back gives its PCS the whole of its state at once."""
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

HELP = """\
Starts replicas on this host for PuppetMasters, sees them die and brings them back. One per host; it
serves any number of runs. ^C or SIGTERM ends it and its replicas. A run goes on if its PuppetMaster
is gone (puppetmaster --attach finds it again), and ends by itself when its inputs do. If the pcs itself
is killed (kill -9), start it again with the same --host, --port and --runs: it adopts its replicas.

What others' topologies may do here is what these options say and no more: code comes from --lib,
data is read below --data, results and durable state are written below --out, logs go to --runs.
Without --keys it serves this machine only.

examples:
  pcs                                            on 127.0.0.1:10000, for topologies without files
  pcs --host 10.0.0.2 --keys ~/cluster --lib ~/functions --data /srv/data --out /srv/results
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to end."""
    return guarded(lambda: serve(_parser().parse_args(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pcs", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"dadstorm {__version__}")
    parser.add_argument("--host", default="127.0.0.1", help="this host's address, as the others reach it (%(default)s)")
    parser.add_argument("--port", type=_number, default=PCS_PORT, help="(default: %(default)s; 0: any)")
    for name, what in (
        ("lib", "folder with CUSTOM modules"),
        ("data", "folder that topologies may read"),
        ("out", "folder that topologies may write"),
    ):
        parser.add_argument(f"--{name}", metavar="DIR", action="append", default=[], help=f"{what}; may be repeated")
    parser.add_argument("--runs", metavar="DIR", default="runs", help="folder for logs and journals (default: runs)")
    parser.add_argument("--keys", metavar="DIR", help="the keys of the cluster (dadstorm keys DIR makes them)")
    parser.add_argument(
        "--max-replicas", metavar="N", type=_number, default=REPLICAS_MAX, help="at most so many (%(default)s)"
    )
    parser.add_argument(
        "--message-mb", metavar="N", type=_number, default=MESSAGE_MB, help="largest message taken (%(default)s MB)"
    )
    parser.add_argument(
        "--orphan-patience",
        metavar="S",
        type=_number,
        default=60,
        help="if this PCS is killed its replicas go on for so many seconds, to be adopted by another (%(default)s)",
    )
    parser.add_argument(
        "--master-patience",
        metavar="S",
        type=_number,
        default=round(MASTER_PATIENCE_S),
        help="after so many seconds of silence a PuppetMaster is taken for dead (%(default)s)",
    )
    return parser


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 65535, found {text!r}")
    return int(text)


def serve(options: argparse.Namespace) -> int:
    """Check everything, fork the zygote while this process is still simple, and serve."""
    keys = None if options.keys is None else load_keys(options.keys)
    policy = _policy(options, keys)
    logs.configure(process="pcs")
    keeper, port = None, options.port
    if not port:
        keeper, address = reserve(policy.host)
        port = port_of(address)
    folder = nest.folder_of(policy.runs, policy.host, port)
    # Whoever ends us from here on does so when we can end the zygote; it would wait for another PCS.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    found, problem = nest.find(folder)
    if problem:
        print(f"warning: {problem}", file=sys.stderr, flush=True)
    zygote_pid, line = (
        zygote.start(None, None, nest=nest.make(folder, options.orphan_patience))
        if found is None
        else (found.census.pid, found.line)
    )
    settings = Settings(
        control.PUBLIC,
        joined(policy.host, port),
        None,
        policy,
        keys,
        options.max_replicas,
        max(1, options.message_mb) << 20,
        max(1, options.master_patience),
    )
    try:
        service = Service(settings, zygote_pid, line, None, found.census if found else None)
    except zmq.ZMQError as error:
        if found is None:
            line.farewell(ZYGOTE_PATIENCE_S)
            nest.remove(folder)
        raise UserError(f"cannot listen on {policy.host}:{options.port}: {error.strerror or error}") from None
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    whom = "with keys" if keys else "without keys: for everybody on this machine, and nobody else"
    print(f"pcs listens on {service.address}, {whom}", file=sys.stderr, flush=True)
    if keeper is not None:
        keeper.close()
    try:
        service.run()
    finally:
        nest.remove(folder)
    return 0


def _policy(options: argparse.Namespace, keys: Keys | None) -> Policy:
    """What the arguments allow; UserError with all that is wrong with them."""
    problems = []
    folders = {name: [os.path.realpath(folder) for folder in getattr(options, name)] for name in ("lib", "data", "out")}
    for name, some in folders.items():
        problems += [f"--{name}: there is no folder {folder}" for folder in some if not os.path.isdir(folder)]
    runs = os.path.realpath(options.runs)
    try:
        os.makedirs(runs, exist_ok=True)
    except OSError as error:
        problems.append(f"--runs: cannot make {runs}: {error.strerror}")
    written = [*folders["out"], runs]
    for name, some in (("lib", folders["lib"]), ("keys", [os.path.realpath(options.keys)] if options.keys else [])):
        for folder in some:
            if any(folder == other or below(folder, [other]) or below(other, [folder]) for other in written):
                problems.append(f"--{name} {folder} overlaps a folder that topologies may write to; keep them apart")
    try:
        host = numeric(options.host.strip("[]"))
        if host in ("0.0.0.0", "::"):
            problems.append(f"--host {options.host}: expected the one address by which the others reach this host")
        elif keys is None and not is_loopback(host):
            problems.append(f"--host {options.host}: others can reach that, and there are no keys: {CURE}")
    except UserError as error:
        problems.append(f"--host: {error}")
    if problems:
        raise UserError(*problems)
    return Policy(host, runs, tuple(folders["lib"]), tuple(folders["data"]), tuple(folders["out"]), keys is not None)


if __name__ == "__main__":
    sys.exit(main())
