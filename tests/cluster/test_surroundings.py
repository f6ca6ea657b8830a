"""Our commands in odd surroundings: streams that are closed or full or know no UTF-8, folders that are gone, few files.

Each ends as it should, and never with a traceback.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.kit import ROOT, as_csv, run

TOPOLOGY = "sources:\n  g: {generate: {n: counter}, count: 3}\noperators:\n  ümläut: {input: g, dup: }\n"
SECONDS = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.yaml").write_text(TOPOLOGY.replace("ümläut", "same"), encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text(TOPOLOGY, encoding="utf-8")
    return tmp_path


def ended(
    folder: Path,
    *arguments: str,
    before: Callable[[], None] | None = None,
    out: int = subprocess.PIPE,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """A command, started in a way that a shell would not."""
    done = subprocess.run(
        [sys.executable, "-m", "dadstorm", *as_csv("dadstorm", arguments, folder)],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, preexec_fn=before, stdout=out,
        stderr=subprocess.PIPE, timeout=SECONDS, encoding="utf-8",
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


def test_without_any_standard_stream_a_topology_runs(folder: Path) -> None:
    done = ended(folder, "run", "t.yaml", before=lambda: os.closerange(0, 3))
    assert done.returncode == 0
    assert (folder / "out" / "same.csv").read_text() == "0\n1\n2\n"


def test_what_the_terminal_cannot_show_is_escaped(folder: Path) -> None:
    done = ended(folder, "check", "wrong.yaml", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert '"\\xfcml\\xe4ut" as a name' in done.stderr
    assert ended(folder, "run", "--help", PYTHONIOENCODING="ascii").returncode == 0


def test_a_full_disk_behind_the_output_is_told(folder: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = ended(folder, "check", "t.yaml", out=full.fileno())
    assert done.returncode == 1
    assert done.stderr == "failed: the output cannot be written: No space left on device\n"


def test_a_reader_that_leaves_is_no_error_of_ours(folder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = ended(folder, "check", "t.yaml", out=write)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_folder_that_was_removed_is_told(folder: Path) -> None:
    gone = folder / "gone"
    gone.mkdir()

    def leave() -> None:
        os.chdir(gone)
        os.rmdir(gone)

    done = ended(folder, "check", str(folder / "t.yaml"), before=leave)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the current folder does not exist any more")


def test_too_few_open_files_are_told_before_anything_starts(folder: Path) -> None:
    done = ended(folder, "run", "t.yaml", before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50)))
    assert done.returncode == 2
    assert "and this system allows 50: allow more (ulimit -n)" in done.stderr
    assert not (folder / "runs").exists()


def test_where_nobody_can_listen(folder: Path) -> None:
    done = run("run", "t.yaml", "--listen", "127.0.0.1:x", cwd=folder)
    assert done.code == 2
    assert done.err == 'error: --listen "127.0.0.1:x": expected HOST or HOST:PORT\n'


WITHOUT_PYSPARK = (
    "import sys; sys.modules['pyspark'] = None; from dadstorm.cli import main; sys.exit(main(sys.argv[1:]))"
)


def test_without_pyspark_the_two_ways_out_are_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "sources: {g: {generate: {n: counter}, count: 3}}\noperators: {all: {input: g, dup: }}\n"
    )

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_PYSPARK, "run", "job.yaml", *arguments], cwd=tmp_path, timeout=SECONDS,
            env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        )  # fmt: skip

    refused = ran()
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "PySpark is not installed" in refused.stderr and "Traceback" not in refused.stderr
    assert "pip install 'pyspark>=4.2'" in refused.stderr and "--sink csv" in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml"]
    assert ran("--sink", "csv").returncode == 0
    assert (tmp_path / "out" / "all.csv").read_text() == "0\n1\n2\n"
