"""A table that Spark writes, as a folder: its data, and the manifest that says what of it counts.

    DIR/commit=<lo>-<hi>/part-…        the rows of one commit, in ID order
    DIR/_dadstorm/table.json           whose table it is and what it looks like
    DIR/_dadstorm/<lo>-<hi>.json       one file per commit: range, rows, digests
    DIR/_dadstorm/staging/             what is under way

Data appears by renaming a folder that is complete; then the commit's file appears, by renaming too; only then does the
commit count. So whoever lists the folder sees whole commits only, and whoever goes by the manifest sees exactly those
that count. What leaves the table leaves the other way round: first the commit's file, then the folder, by renaming it
into ``staging``. Readers skip names that begin with ``_``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable

import msgspec

from dadstorm.errors import RunFailed, UserError
from dadstorm.sinks.disk import ensure_folder, remove, sync_folder
from dadstorm.spark import manifest
from dadstorm.spark.commits import Commit

META = "_dadstorm"
HEADER = "table.json"
STAGING = "staging"
VERSION = 1

_FOLDER = re.compile(r"commit=(?:r\d{5}-)?\d{19}-\d{19}")
_RECORD = re.compile(r"(?:r\d{5}-)?\d{19}-\d{19}\.json")


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose table it is, and what it looks like."""

    topology: str
    sink: str
    format: str
    columns: tuple[tuple[str, str], ...]
    """Names and types of the fields."""
    with_id: bool
    span: int
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = {}
    runs: tuple[str, ...] = ()
    """The runs that have written it, oldest first."""
    version: int = VERSION

    def alike(self, other: Header) -> bool:
        """Whether rows of the one can stand beside rows of the other."""
        return msgspec.structs.replace(self, runs=()) == msgspec.structs.replace(other, runs=())


class Table:
    """The folder of one table."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.meta = os.path.join(path, META)
        self.staging = os.path.join(self.meta, STAGING)

    def header(self) -> Header | None:
        """What the manifest says about the table; None: there is none. Raises UserError for one that is not ours."""
        return manifest.load(os.path.join(self.meta, HEADER), Header, VERSION)

    def commits(self) -> list[Commit]:
        """All commits that count, of all runs, oldest first."""
        found: list[Commit] = []
        for name in self._records():
            path = os.path.join(self.meta, name)
            try:
                with open(path, "rb") as file:
                    commit = msgspec.json.decode(file.read(), type=Commit)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UserError(f"{path} cannot be read: {error}") from None
            if f"{commit.name}.json" != name:
                raise UserError(f"{path} is about the commit {commit.name}; expected its own")
            found.append(commit)
        return found

    def folders(self) -> list[str]:
        """The folders of rows, whether they count or not."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(name for name in os.listdir(self.path) if _FOLDER.fullmatch(name))
        return []

    def _records(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(name for name in os.listdir(self.meta) if _RECORD.fullmatch(name))
        return []

    def problem(self, topology: str, sink: str, mode: str, wanted: Header | None = None) -> str | None:
        """Why this sink may not write here; None if it may. Changes nothing."""
        if os.path.lexists(self.path) and not os.path.isdir(self.path):
            return f"{self.path} is a file; Spark writes a folder"
        folder = self.path
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder):
            return f"{folder} is a file where a folder is needed"
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"no permission to write in {folder}"
        try:
            header = self.header()
        except UserError as error:
            return str(error)
        if header is None:
            foreign = sorted(name for name in os.listdir(self.path) if name != META) if folder == self.path else []
            if foreign:
                found = f"found {foreign[0]!r} in it; move it away, or give the sink another path"
                return f"{self.path}: expected an empty folder or a table of this sink's, {found}"
            return None
        if (header.topology, header.sink) != (topology, sink):
            return (
                f"{self.path} was written by sink {header.sink} of topology {header.topology}; expected a "
                "table of this sink's, or none: remove it, or give the sink another path"
            )
        if mode == "error":
            return f"{self.path} is there already, and mode is error; remove it, or say mode: overwrite or append"
        if mode == "append" and wanted is not None and not wanted.alike(header):
            return f"{self.path} has other columns or another format than the rows that mode: append would add to it"
        return None

    def write_header(self, header: Header) -> None:
        self._put(HEADER, msgspec.json.format(msgspec.json.encode(header)) + b"\n", fsync=True)

    def add(self, commit: Commit, staged: str | None, fsync: bool) -> None:
        """Let a commit count, whose rows lie in a folder under ``staging``."""
        if staged is not None:
            assert commit.folder is not None
            if fsync:
                sync_tree(staged)
            final = os.path.join(self.path, commit.folder)
            if os.path.lexists(final):
                self._move_out(commit.folder)
            os.rename(staged, final)
            if fsync:
                sync_folder(self.path)
        self._put(f"{commit.name}.json", msgspec.json.encode(commit) + b"\n", fsync)

    def drop(self, commits: Iterable[Commit]) -> None:
        """Take commits out, the last first: what is left is a whole chain at any moment."""
        going = list(commits)
        if not going:
            return
        for commit in reversed(going):
            remove(os.path.join(self.meta, f"{commit.name}.json"))
        sync_folder(self.meta)
        for commit in going:
            if commit.folder is not None:
                self._move_out(commit.folder)

    def tidy(self, counted: Iterable[Commit]) -> None:
        """Remove whatever is no part of these commits: folders that never counted, and all that was under way."""
        ensure_folder(self.meta)
        shutil.rmtree(self.staging, ignore_errors=True)
        ensure_folder(self.staging)
        folders = {commit.folder for commit in counted}
        for name in self.folders():
            if name not in folders:
                self._move_out(name)
        for name in os.listdir(self.meta):
            if name.endswith(".tmp"):
                remove(os.path.join(self.meta, name))

    def missing(self, commits: Iterable[Commit]) -> str | None:
        """The first folder of these commits that is not there."""
        for commit in commits:
            if commit.folder is not None and not os.path.isdir(os.path.join(self.path, commit.folder)):
                return commit.folder
        return None

    def _move_out(self, folder: str) -> None:
        """A folder of rows leaves the table at once, and then the disk."""
        ensure_folder(self.staging)
        trash = os.path.join(self.staging, f"trash-{folder}")
        shutil.rmtree(trash, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(self.path, folder), trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _put(self, name: str, content: bytes, fsync: bool) -> None:
        ensure_folder(self.meta)
        manifest.put(os.path.join(self.meta, name), content, fsync)


def gone(path: str, sink: str, expected: str, found: str) -> RunFailed:
    """A table is not as its last run left it."""
    return RunFailed(
        f"sink {sink}: cannot go on with {path}: expected {expected}, found {found}; put the folder back as "
        "the last run left it, or run from the beginning"
    )


def sync_tree(folder: str) -> None:
    """All files and names below a folder are on the disk."""
    for parent, _, files in os.walk(folder):
        for name in files:
            descriptor = os.open(os.path.join(parent, name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(parent)
