"""Sources: where records come from and how they get their seqs.

``make_reader`` is all that the rest of the system needs: a reader for one slice of a source, from the start or from a
mark.
"""

from __future__ import annotations

from dadstorm.core.line import START
from dadstorm.errors import RunFailed
from dadstorm.plan import Operator, Plan
from dadstorm.sources.base import Mark, Reader, Records

__all__ = ["Mark", "Reader", "Records", "make_reader"]


def make_reader(
    operator: Operator,
    plan: Plan,
    slice_index: int,
    *,
    run_dir: str,
    sockets: str | None = None,
    folder: str | None = None,
    mark: Mark | None = None,
    cut: int = START,
) -> Reader:
    """A reader for one slice of a source that gives every record at or above ``cut``, once, in order of seq.

    ``run_dir`` is where journals go (synced to the disk if the plan is durable), ``sockets`` the folder of socket
    files and ``folder`` that of logs (``run_dir`` if not given). ``mark`` is what an earlier reader of the slice
    returned for this cut or a lower one; without it, reading starts at the beginning of the input. Raises
    ``RunFailed`` when the input cannot be opened.
    """
    kind = operator.params["type"]
    if kind == "file":
        if operator.params["format"] == "parquet":
            from dadstorm.sources.parquet import ParquetReader

            return ParquetReader(operator, slice_index, mark=mark, cut=cut)
        from dadstorm.sources.files import FileReader

        return FileReader(operator, slice_index, mark=mark, cut=cut)
    if kind == "generate":
        from dadstorm.sources.generate import GenerateReader

        return GenerateReader(operator, slice_index, mark=mark, cut=cut)
    if kind in ("tcp", "stdin"):
        from dadstorm.sources.live import StdinReader, TcpReader

        live = TcpReader if kind == "tcp" else StdinReader
        durable = plan.durable is not None
        return live(operator, slice_index, run_dir=run_dir, sockets=sockets, mark=mark, cut=cut, fsync=durable)
    if kind == "spark" and operator.params.get("stream"):
        from dadstorm.sources.spark_stream import SparkStreamReader

        logs = folder or run_dir
        return SparkStreamReader(operator, plan, slice_index, run_dir=run_dir, folder=logs, mark=mark, cut=cut)
    if kind == "spark":
        from dadstorm.sources.spark import SparkReader

        return SparkReader(operator, plan, slice_index, run_dir=run_dir, folder=folder or run_dir, mark=mark, cut=cut)
    raise RunFailed(f"source {operator.name!r}: no such type: {kind!r}; there are file, generate, tcp, stdin and spark")
