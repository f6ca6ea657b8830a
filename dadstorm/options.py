"""The options that several commands share: defined once, so that they mean the same everywhere."""

from __future__ import annotations

import argparse
from typing import Any

FORMATS = ("csv", "jsonl", "parquet", "console", "spark")
TOPOLOGY = "the topology, in YAML or in the original language"


def run_options(parser: argparse.ArgumentParser, *, script: str) -> None:
    """What ``dadstorm run`` and ``puppetmaster`` both take; ``script``: what a script is for."""
    parser.add_argument("--out", metavar="DIR", help="folder for the results (default: out)")
    parser.add_argument("--sink", choices=FORMATS, help="how results are written (default: spark, as Parquet)")
    lib_option(parser)
    parser.add_argument("--runs", metavar="DIR", default="runs", help="folder for logs and journals (default: runs)")
    parser.add_argument("--script", metavar="FILE", help=script)
    parser.add_argument(
        "--audit", action="store_true", help="record digests and compare what is done again: is it deterministic?"
    )
    parser.add_argument("--resume", action="store_true", help="go on with a run that was killed (durable: DIR)")
    cluster_options(parser)
    parser.add_argument("--listen", metavar="HOST[:PORT]", help="where the PuppetMaster listens, for other hosts")


def run_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The same, as the arguments of ``puppetmaster.run.Options``."""
    same = ("out", "sink", "runs", "script", "audit", "resume", "keys", "listen")
    return {name: getattr(options, name) for name in same} | {"libs": tuple(options.lib), "pcs": tuple(options.pcs)}


def lib_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lib", metavar="PATH", action="append", default=[], help="folder with CUSTOM functions; may be repeated"
    )


def cluster_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", metavar="DIR", help="the keys of the cluster (dadstorm keys DIR makes them)")
    parser.add_argument(
        "--pcs",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="run what is on this machine at this PCS instead; may be repeated: replicas are spread over them",
    )
