"""Files on other file systems: what a file system without atomic replacement is asked for, and in which order."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dadstorm.durable import files, remote
from dadstorm.durable.files import Damaged

fs = pytest.importorskip("pyarrow.fs")


class Killed(Exception):
    pass


class Renaming(fs.FileSystemHandler):
    """A folder as Arrow shows HDFS: files are seen while they are written, and one that is to be replaced is removed
    before the other is renamed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dies_before = ""
        self.local = fs.LocalFileSystem()

    def get_type_name(self) -> str:
        return "hdfs"

    def _at(self, path: str) -> str:
        return str(self.folder / path.lstrip("/"))

    def _step(self, name: str) -> None:
        if name == self.dies_before:
            raise Killed

    def open_output_stream(self, path, metadata):  # type: ignore[no-untyped-def]
        return self.local.open_output_stream(self._at(path))

    def open_input_stream(self, path):  # type: ignore[no-untyped-def]
        return self.local.open_input_stream(self._at(path))

    def move(self, src, dest):  # type: ignore[no-untyped-def]
        self._step("delete")
        Path(self._at(dest)).unlink(missing_ok=True)
        self._step("move")
        self.local.move(self._at(src), self._at(dest))

    def delete_file(self, path):  # type: ignore[no-untyped-def]
        if not Path(self._at(path)).exists():
            raise OSError(errno.EIO, "no reason given")
        self.local.delete_file(self._at(path))

    def delete_dir(self, path):  # type: ignore[no-untyped-def]
        self.local.delete_dir(self._at(path))

    def create_dir(self, path, recursive):  # type: ignore[no-untyped-def]
        self.local.create_dir(self._at(path), recursive=recursive)

    def get_file_info_selector(self, selector):  # type: ignore[no-untyped-def]
        found = self.local.get_file_info(
            fs.FileSelector(self._at(selector.base_dir), selector.allow_not_found, selector.recursive)
        )
        cut = len(str(self.folder))
        return [fs.FileInfo(one.path[cut:], one.type) for one in found]

    copy_file = delete_dir_contents = delete_root_dir_contents = get_file_info = normalize_path = None
    open_append_stream = open_input_file = None


@pytest.fixture
def hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Renaming:
    handler = Renaming(tmp_path)
    system = fs.PyFileSystem(handler)
    monkeypatch.setattr(remote, "_system", lambda root: (system, "/"))
    monkeypatch.setattr(remote, "_whole_at_once", lambda system: False)
    return handler


def test_a_file_is_replaced_and_its_folder_listed(hdfs: Renaming) -> None:
    files.make_folder("hdfs://node/kept/deep")
    assert files.write("hdfs://node/kept/book", b"one", b"1") == files.write("hdfs://node/kept/book", b"two", b"2")
    files.write("hdfs://node/kept/deep/state", b"", b"3")
    assert [bytes(part) for part in files.read("hdfs://node/kept/book")] == [b"two", b"2"]
    assert sorted(files.names("hdfs://node/kept")) == ["book", "deep/state"]
    files.remove("hdfs://node/kept/deep/state")
    assert list(files.names("hdfs://node/kept")) == ["book"]
    files.remove_folder("hdfs://node/kept")
    assert list(files.names("hdfs://node/kept")) == []


@pytest.mark.parametrize(("step", "left"), [("delete", b"one"), ("move", b"two")])
def test_who_dies_while_a_file_is_replaced_leaves_the_old_or_the_new_one(
    hdfs: Renaming, step: str, left: bytes
) -> None:
    files.make_folder("hdfs://node/kept")
    files.write("hdfs://node/kept/book", b"one")
    hdfs.dies_before = step
    with pytest.raises(Killed):
        files.write("hdfs://node/kept/book", b"two")
    hdfs.dies_before = ""
    assert files.read("hdfs://node/kept/book")[0] == left
    files.write("hdfs://node/kept/book", b"three")
    assert files.read("hdfs://node/kept/book")[0] == b"three"


def test_who_dies_while_the_first_file_is_written_leaves_none(hdfs: Renaming) -> None:
    files.make_folder("hdfs://node/kept")
    hdfs.dies_before = "move"
    with pytest.raises(Killed):
        files.write("hdfs://node/kept/book", b"one")
    scratch = hdfs.folder / "kept" / "book.tmp"
    scratch.write_bytes(scratch.read_bytes()[:-1])
    with pytest.raises(FileNotFoundError):
        files.read("hdfs://node/kept/book")


@pytest.mark.parametrize("place", ["s3://bad bucket/x", "abfss://nohost/x"])
def test_an_address_that_is_none_is_an_error_of_the_system(place: str) -> None:
    with pytest.raises(OSError):
        remote.read(place)


def test_a_damaged_file_is_found_out(hdfs: Renaming) -> None:
    files.make_folder("hdfs://node/kept")
    files.write("hdfs://node/kept/book", b"one")
    path = hdfs.folder / "kept" / "book"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged):
        files.read("hdfs://node/kept/book")
    with pytest.raises(FileNotFoundError):
        files.read("hdfs://node/kept/none")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("s3a://jobs/one/", "s3://jobs/one"), ("S3://jobs", "s3://jobs"), ("gcs://b/x", "gs://b/x"),
        ("hdfs://node:9000/kept", "hdfs://node:9000/kept"), ("wasb://x/y", None), ("s3://", None), ("http://x/y", None),
    ],
)  # fmt: skip
def test_paths_are_known_by_spark_s_names_too(given: str, found: str | None) -> None:
    assert remote.normal(given) == found
