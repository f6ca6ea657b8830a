"""Files on other file systems, through Arrow: ``s3://``, ``gs://``, ``abfss://`` (object stores) and ``hdfs://``.

A file appears under its name only when it is complete, as on a disk. An object store promises so by itself. On HDFS a
file is written under another name and renamed; as no rename replaces a file there, the old one is removed first (Arrow
does that), and whoever comes just then finds the new one under its other name.

Who may use them, and where they are, is told as other programs are told: by the environment (``AWS_ACCESS_KEY_ID``,
``AWS_ENDPOINT_URL``, …), by the user's profile, by the machine's role. No secret passes through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

SCHEMES = ("s3", "gs", "abfss", "hdfs")
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
"""What Spark calls them."""
SCRATCH = ".tmp"
"""How the names of files that are being written end."""


def is_remote(path: str) -> bool:
    return "://" in path


def normal(path: str) -> str | None:
    """A path as it is known here, without a slash at its end; None if nobody knows such a file system."""
    scheme, _, rest = path.partition("://")
    scheme = _SAME.get(scheme.lower(), scheme.lower())
    if scheme not in SCHEMES or not rest.strip("/"):
        return None
    return f"{scheme}://{rest.rstrip('/')}"


def read(path: str) -> bytes:
    return _read(*_found(path))


def read_unfinished(path: str) -> bytes:
    """What was about to become this file, where files are renamed: all of it if the old one has made way already."""
    system, place = _found(path)
    if _whole_at_once(system):
        raise FileNotFoundError(path)
    return _read(system, place + SCRATCH)


def write(path: str, parts: Iterable[bytes | memoryview]) -> None:
    """Put a file there, whole or not at all, in place of the one that was there."""
    system, place = _found(path)
    data = b"".join(parts)  # At once: an object store takes for complete what it has when a stream is closed.
    with system.open_output_stream(place if _whole_at_once(system) else place + SCRATCH) as file:
        file.write(data)
    if not _whole_at_once(system):
        system.move(place + SCRATCH, place)


def make_folder(path: str) -> None:
    """The folder is there, where there are such things."""
    system, place = _found(path)
    if not _whole_at_once(system):
        system.create_dir(place, recursive=True)


def names(folder: str) -> Iterator[str]:
    """The files below a folder, by their paths from there on."""
    from pyarrow.fs import FileSelector, FileType

    system, place = _found(folder)
    for info in system.get_file_info(FileSelector(place, allow_not_found=True, recursive=True)):
        if info.type == FileType.File:
            yield info.path[len(place) + 1 :]


def remove(path: str) -> None:
    system, place = _found(path)
    system.delete_file(place)


def remove_folder(folder: str) -> None:
    system, place = _found(folder)
    system.delete_dir(place)


def check(folder: str) -> None:
    """Raises OSError unless files can be written, listed and removed there."""
    trial = f"{folder}/trial"
    make_folder(folder)
    write(trial, [b"may be removed"])
    list(names(folder))
    remove(trial)


def _read(system: Any, place: str) -> bytes:
    with system.open_input_stream(place) as file:
        data: bytes = file.read()
    return data


def _whole_at_once(system: Any) -> bool:
    """Whether a file is not there until it is complete."""
    return system.type_name in ("s3", "gcs", "abfs")


def _found(path: str) -> tuple[Any, str]:
    scheme, _, rest = path.partition("://")
    host, _, place = rest.partition("/")
    system, root = _system(f"{scheme}://{host}/")
    whole = f"{root.rstrip('/')}/{place}"
    return system, whole if scheme == "hdfs" else whole.lstrip("/")


@lru_cache(8)
def _system(root: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    try:
        system, place = FileSystem.from_uri(root)
    except (ValueError, NotImplementedError) as error:
        raise OSError(str(error)) from None
    return system, place
