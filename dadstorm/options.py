"""The options that several commands share: defined once, so that they mean the same everywhere."""

from __future__ import annotations

import argparse
from typing import Any

from dadstorm.errors import UserError

FORMATS = ("csv", "jsonl", "parquet", "console", "spark", "spool")
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


def spark_options(parser: argparse.ArgumentParser) -> None:
    """What tells ``dadstorm run`` to run on Spark."""
    group = parser.add_argument_group("Spark", "run the topology as Spark jobs, with the same results")
    group.add_argument("--engine", choices=("native", "spark"), default="native", help="what runs it (default: native)")
    group.add_argument("--master", metavar="URL", help="local[N], spark://HOST:PORT, yarn … (default: local[*])")
    group.add_argument("--conf", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's")
    kept = "where state is kept, for --resume: a folder that all executors see, or s3://, gs://, abfss://, hdfs://"
    group.add_argument("--checkpoint", metavar="DIR", help=kept)


def engine_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``puppetmaster.engine.EngineOptions`` if it is to run on Spark; else nothing."""
    if options.engine != "spark":
        given = [f"--{name}" for name in ("master", "conf", "checkpoint") if getattr(options, name)]
        if given:
            raise UserError(f"{', '.join(given)}: only with --engine spark")
        return {}
    conf = {}
    for text in options.conf:
        key, equals, value = text.partition("=")
        if not key.startswith("spark.") or not equals or key in ("spark.master", "spark.app.name"):
            raise UserError(f'--conf: found "{text}"; expected KEY=VALUE with a setting that begins with spark.')
        conf[key] = value
    natives = ("script", "keys", "listen", "pcs", "shake_delay", "shake_batch", "shake_seed", "shake_order")
    return {
        "master": options.master or "local[*]",
        "conf": conf,
        "libs": tuple(options.lib),
        "refused": {f"--{name.replace('_', '-')}": bool(getattr(options, name)) for name in natives},
    } | {name: getattr(options, name) for name in ("checkpoint", "out", "sink", "runs", "audit", "resume")}


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
